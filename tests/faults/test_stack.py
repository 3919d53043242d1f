"""Where the code of a running job is, asked from outside: always an answer, and the job goes on undisturbed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from stillhere import SyncHandle
from stillhere.ports.inspector import Answered, Ask
from tests.faults.kit import QUEUE, Stage
from tests.support.procs import eventually

ROOT = Path(__file__).resolve().parents[2]


def stack(stage: Stage, job: SyncHandle[object]) -> str:
    """What the command prints."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "stillhere",
            "stack",
            job.id,
            "--url",
            stage.url,
            "--namespace",
            stage.namespace,
            "--json",
        ],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    text: str = json.loads(done.stdout)["stack"]
    return text


def test_a_coroutine_that_waits_is_read_from_await_to_await(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "4")
    job = stage.add("nap", 20.0)
    stage.started(job)
    text = stack(stage, job)
    assert text.startswith(f"job {job.id} runs for ")
    assert f"worker {stage.record(job).worker}" in text
    assert "which turns" in text
    assert "in nap" in text
    assert "await asyncio.sleep(STEP_S)" in text
    assert worker.running


def test_a_function_is_read_in_its_thread(stage: Stage) -> None:
    stage.ready_worker("-c", "4")
    job = stage.add("nap_sync", 20.0)
    stage.started(job)
    text = stack(stage, job)
    assert "runs in a thread" in text
    assert "time.sleep(STEP_S)" in text


def test_one_that_blocks_the_loop_is_named_to_those_that_wait_for_it(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "4")
    waits = stage.add("nap", 30.0)
    stage.started(waits)
    blocks = stage.add("block_loop", 12.0)
    stage.started(blocks)
    worker.wait_for(f"it is in a step of block_loop {blocks.id[-8:]}")
    assert "It blocks the event loop" in stack(stage, blocks)
    text = stack(stage, waits)
    assert f"blocked by job {blocks.id} (block_loop)" in text
    assert "time.sleep" in text


def test_a_held_interpreter_is_read_from_outside(stage: Stage) -> None:
    worker = stage.ready_worker("-c", "4")
    job = stage.add("hold_gil", 12.0)
    stage.started(job)
    worker.wait_for("no other thread gets to run")
    text = stack(stage, job)
    assert f"a call holds the interpreter, in a step of job {job.id} (hold_gil)" in text
    assert "hold_gil (" in text, "what py-spy has read"
    stage.finished(job)
    assert stage.story().starts(job.id) == 1


def test_a_thousand_looks_at_busy_threads_end_nobody(stage: Stage) -> None:
    stage.ready_worker("-c", "6")
    jobs = [stage.add("grind", 60.0) for _ in range(4)] + [stage.add("nap", 60.0) for _ in range(2)]
    pids = {stage.started(job).pid for job in jobs}
    seen: Counter[str] = Counter()
    for turn in range(50):
        questions = {f"{turn}-{n}": jobs[n % len(jobs)] for n in range(20)}
        for question, job in questions.items():
            assert stage.store.call(Ask(queue=QUEUE, id=question, job=job.id))
        for question in questions:
            text = eventually(lambda: stage.store.call(Answered(queue=QUEUE, id=question)), 20)  # noqa: B023 - at once
            assert text is not None
            seen["thread" if "in grind" in text else "loop" if "in nap" in text else text] += 1
    assert sum(seen.values()) == 1000
    assert set(seen) == {"thread", "loop"}, "each was found where it was"
    assert {stage.started(job).pid for job in jobs} == pids
    assert all(stage.story().starts(job.id) == 1 for job in jobs)
