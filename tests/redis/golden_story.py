"""One job brought into each state of version 1: the records that `golden/` keeps, word for word.

``python -m tests.redis.golden_story`` writes the files anew; a changed field of a released version is a broken promise
to every other reader, so look at the difference before you keep it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from stillhere.domain.job import OutcomeKind, Verdict
from stillhere.ports.backend import Cancel, Checkpoint, Progress, ProgressItem
from tests.redis.kit import Queue
from tests.support.servers import RedisServer

GOLDEN = Path(__file__).parent / "golden"
WORKER = "mill-0123456789abcdef"
ARGS = '{"domain":"example.com","depth":2}'


def _scheduled(q: Queue) -> None:
    q.enqueue("job", args=ARGS, delay_ms=60_000)


def _ready(q: Queue) -> None:
    options = {"unique": "example.com", "unique_for_ms": 3_600_000, "headers": {"traceparent": "00-ab/cd-01"}}
    q.enqueue("job", args=ARGS, priority=0, max_attempts=7, max_losses=1, retention_ms=86_400_000, **options)


def _parked(q: Queue) -> None:
    q.register(WORKER, tasks=["other"])
    q.enqueue("job", args=ARGS)
    q.claim(WORKER)


def _running(q: Queue) -> None:
    q.register(WORKER)
    q.enqueue("job", args=ARGS)
    q.now += 500
    (grant,) = q.take(WORKER)
    q.now += 1_000
    q.call(Checkpoint(queue="q", worker=WORKER, job="job", token=grant.token, number=1, value='{"page":3}'))
    item = ProgressItem(job="job", token=grant.token, number=1, value='{"done":3,"total":9,"note":"half"}')
    q.call(Progress(queue="q", worker=WORKER, items=[item]))


def _cancelling(q: Queue) -> None:
    _running(q)
    q.call(Cancel(queue="q", job="job", reason="not needed"))


def _run(q: Queue, kind: OutcomeKind, **fields: object) -> None:
    q.register(WORKER)
    q.enqueue("job", args=ARGS)
    (grant,) = q.take(WORKER)
    q.now += 2_000
    q.settle(WORKER, grant, kind, **fields)


ERROR = '{"type":"ValueError","message":"no such page","traceback":"Traceback ...","exit":""}'


def _retried(q: Queue) -> None:
    _run(q, OutcomeKind.RETRY, delay_ms=1_500, error=ERROR)


def _interrupted(q: Queue) -> None:
    _run(q, OutcomeKind.INTERRUPTED)


def _lost(q: Queue) -> None:
    _running(q)
    q.end(WORKER, Verdict.CULPRIT)


def _long(q: Queue) -> None:
    q.enqueue("job", args=ARGS, lane="long")


def _beside(q: Queue) -> None:
    q.register(WORKER)
    q.enqueue("job", args=ARGS, lane="solo")
    q.take(WORKER, 1, "solo")
    q.now += 1_000
    q.end(WORKER, Verdict.BESIDE, details={"job": 'File "crawl.py", line 7, in fetch'})


def _succeeded(q: Queue) -> None:
    _run(q, OutcomeKind.SUCCEEDED, result='{"pages":9}')


def _succeeded_and_dropped(q: Queue) -> None:
    _run(q, OutcomeKind.SUCCEEDED, result='{"pages":9}', retention_ms=0)


def _dead(q: Queue) -> None:
    _run(q, OutcomeKind.DEAD, error=ERROR, reason="failed")


def _cancelled(q: Queue) -> None:
    q.enqueue("job", args=ARGS)
    q.now += 10
    q.call(Cancel(queue="q", job="job", reason="not needed"))


STORIES: dict[str, Callable[[Queue], None]] = {
    "v1-scheduled": _scheduled,
    "v1-ready": _ready,
    "v1-ready-parked": _parked,
    "v1-ready-interrupted": _interrupted,
    "v1-ready-lost": _lost,
    "v1-ready-long": _long,
    "v1-ready-beside": _beside,
    "v1-running": _running,
    "v1-running-cancelling": _cancelling,
    "v1-scheduled-retry": _retried,
    "v1-succeeded": _succeeded,
    "v1-succeeded-dropped": _succeeded_and_dropped,
    "v1-dead": _dead,
    "v1-cancelled": _cancelled,
}


def record_of(q: Queue, story: str) -> dict[str, str]:
    """The bare hash at the end of a story; the entry's id is the server's and stands for itself."""
    STORIES[story](q)
    record = dict(sorted(q.job_hash("job").items()))
    if "_entry" in record:
        record["_entry"] = "<entry>"
    return record


def kept(story: str) -> dict[str, str]:
    """What the repository keeps of it."""
    record: dict[str, str] = json.loads((GOLDEN / f"{story}.json").read_text())
    return record


def main() -> None:
    """Write all files."""
    server = RedisServer("valkey").start()
    try:
        for number, story in enumerate(STORIES):
            q = Queue(server, f"golden{number}")
            text = json.dumps(record_of(q, story), indent=2) + "\n"
            (GOLDEN / f"{story}.json").write_text(text)
            q.close()
    finally:
        server.close()


if __name__ == "__main__":
    main()
