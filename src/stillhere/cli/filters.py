"""Words that choose jobs: ``task:x queue:x state:x id:x age:>2h error:text worker:x``, joined by and.

A filter becomes one `Jobs` verb for each queue and state that it allows; pages are walked until enough was found, since
a page may be short or empty and still have a next one. The cursor that `jobs` prints names the queue and the store's
own cursor in it, so a later call goes on at the same place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from stillhere.cli.place import CommandLink
from stillhere.domain.durations import DurationError, milliseconds
from stillhere.domain.job import JobRecord
from stillhere.domain.states import State
from stillhere.ports.inspector import Jobs, Queues

WORDS = ("task", "queue", "state", "id", "age", "error", "worker")
HELP = "FILTER words: task:x queue:x state:x id:x age:>2h error:text worker:x; all of them must hold."

_PAGE = 200


@dataclass(frozen=True)
class Filter:
    """What a job must be."""

    queue: str | None = None
    state: State | None = None
    task: str | None = None
    id_tail: str | None = None
    worker: str | None = None
    error_text: str | None = None
    older_than_ms: int | None = None

    def verb(self, queue: str, state: State | None, after: str | None, limit: int) -> Jobs:
        """The look at one queue."""
        return Jobs(
            queue=queue,
            state=state,
            task=self.task,
            worker=self.worker,
            id_tail=self.id_tail,
            error_text=self.error_text,
            older_than_ms=self.older_than_ms,
            limit=limit,
            after=after,
        )


def is_filter(word: str) -> bool:
    """Whether the word is one of a filter (an id may hold a colon, too)."""
    return word.partition(":")[0] in WORDS and ":" in word


def parse(words: Sequence[str]) -> Filter:
    """The filter of these words; a usage error names the first that is none."""
    values: dict[str, str] = {}
    for word in words:
        name, colon, value = word.partition(":")
        if not colon or name not in WORDS or not value:
            raise click.UsageError(f"{word!r} is no filter. {HELP}")
        if name in values:
            raise click.UsageError(f"{name}: is given twice; all words must hold, so one of them is too much.")
        values[name] = value
    return Filter(
        queue=values.get("queue"),
        state=_state(values.get("state")),
        task=values.get("task"),
        id_tail=values.get("id"),
        worker=values.get("worker"),
        error_text=values.get("error"),
        older_than_ms=_age(values.get("age")),
    )


def _state(word: str | None) -> State | None:
    if word is None:
        return None
    try:
        return State(word)
    except ValueError:
        raise click.UsageError(f"state:{word}: the states are {', '.join(State)}.") from None


def _age(word: str | None) -> int | None:
    if word is None:
        return None
    if word.startswith("<"):
        raise click.UsageError(f"age:{word}: only older ones can be chosen: age:>{word[1:] or '2h'}.")
    try:
        return milliseconds(word.removeprefix(">"), "age")
    except DurationError as error:
        raise click.UsageError(str(error)) from None


def queues_of(link: CommandLink, queue: str | None) -> list[str]:
    """The queue asked for, or all that the namespace has."""
    return [queue] if queue is not None else link.ask(Queues(queue=""))


def look(link: CommandLink, chosen: Filter, *, limit: int, after: str | None) -> tuple[list[JobRecord], str | None]:
    """At most `limit` jobs, and the cursor to go on from; None: there are no more."""
    found: list[JobRecord] = []
    start, cursor = _opened(after)
    for queue in queues_of(link, chosen.queue):
        if queue < start:
            continue
        within = cursor if queue == start else None
        while True:
            verb = chosen.verb(queue, chosen.state, within or None, min(limit - len(found), _PAGE))
            page = link.ask(verb)
            found += page.jobs
            within = page.after
            if len(found) >= limit:
                return found, f"{queue}:{within}" if within else _next_queue(link, chosen, queue)
            if within is None:
                break
    return found, None


def _next_queue(link: CommandLink, chosen: Filter, queue: str) -> str | None:
    later = [other for other in queues_of(link, chosen.queue) if other > queue]
    return f"{later[0]}:" if later else None


def _opened(after: str | None) -> tuple[str, str]:
    if after is None:
        return "", ""
    queue, colon, cursor = after.partition(":")
    if not colon:
        raise click.UsageError(f"--after {after!r}: give the cursor that the last call printed.")
    return queue, cursor


def walk(link: CommandLink, chosen: Filter, states: Sequence[State | None] = (None,)) -> Iterator[JobRecord]:
    """All jobs that the filter allows; in these states, when it names none itself."""
    for queue in queues_of(link, chosen.queue):
        for state in [chosen.state] if chosen.state else states:
            cursor: str | None = None
            while True:
                page = link.ask(chosen.verb(queue, state, cursor, _PAGE))
                yield from page.jobs
                cursor = page.after
                if cursor is None:
                    break
