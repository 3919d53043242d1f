"""`stillhere enqueue TASK key=text key:=json`: send one job from a shell.

Where an app is named and has the task, the call is checked as the program's own: the arguments are decoded by the
task's annotations and encoded again, so what a worker could not take is refused here, and the task's options hold. With
``--url`` alone, or without an app, the arguments go as they are, as from a producer in another language, and only a
worker can say that they do not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from stillhere.cli.face import nearest
from stillhere.cli.kinds import DELAY, DURATION, TIME, NameKind
from stillhere.cli.options import Choices, Verb
from stillhere.cli.output import print_json
from stillhere.cli.wait import print_end, wait_for_end
from stillhere.domain.durations import spell
from stillhere.domain.errors import ConfigurationError, UnknownTask

if TYPE_CHECKING:
    from stillhere.cli.place import Place
    from stillhere.domain.options import CallOptions
    from stillhere.domain.task import TaskDef
    from stillhere.handle import NewJob

_OPTIONS = ("id", "queue", "priority", "at", "unique", "max_attempts")
_DURATIONS = ("delay", "retention")


@click.command(cls=Verb)
@click.argument("task", type=NameKind("task"))
@click.argument("words", nargs=-1, metavar="[key=text|key:=json]...")
@click.option("--id", "id", help="The job's id; the same id again makes no second job.")
@click.option("--queue", "-q", type=NameKind("queue"), help="Instead of the task's own queue.")
@click.option("--priority", type=click.Choice(["high", "normal", "low"]))
@click.option("--delay", type=DELAY, help="Start so long from now: 90s, 10m, 1h30m.")
@click.option("--at", type=TIME, help="Start then: 2026-12-01T03:00Z.")
@click.option("--unique", metavar="KEY", help="One live job with this key for this task.")
@click.option("--max-attempts", type=click.IntRange(1), help="Instead of the task's own.")
@click.option("--retention", type=DURATION, help="Keep the record and the result so long after the end.")
@click.option("--wait", is_flag=True, help="Wait for the end and print the result.")
@click.option("--timeout", type=DURATION, help="With --wait: at most so long.")
@click.pass_obj
def enqueue(
    choices: Choices, /, task: str, words: tuple[str, ...], wait: bool, timeout: int | None, **options: Any
) -> None:
    """Send one job; prints its id, or with --wait its result.

    key=text passes a text, key:=json any JSON value: stillhere enqueue resize name=a.png width:=300
    """
    from stillhere.sending import send_sync

    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait.")
    place = choices.place(may_make=True)
    job = prepare(place, task, arguments(words), call_options(options))
    handle = send_sync(job)
    if wait:
        click.echo(f"job {handle.id}", err=True)
        print_end(choices, wait_for_end(place.link, handle.id, job.record.queue, timeout))
        return
    if choices.as_json:
        print_json({"id": handle.id, "created": handle.created, "task": task, "queue": job.record.queue})
        return
    if not handle.created:
        click.echo("stillhere: it is there already; this is the job that stands:", err=True)
    click.echo(handle.id)


def arguments(words: tuple[str, ...]) -> str:
    """The JSON text of the arguments; a usage error for a word that gives none."""
    import json

    import msgspec

    found: dict[str, str] = {}
    for word in words:
        key, equals, text = word.partition("=")
        name = key.removesuffix(":")
        if not equals or not name:
            raise click.UsageError(f"{word!r}: write {name or 'key'}=text or {name or 'key'}:=json.")
        if name in found:
            raise click.UsageError(f"{name!r} is given twice.")
        if key != name:
            try:
                msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeError) as error:
                raise click.UsageError(f"{word!r} is not JSON: {error}. For a text write {name}=...") from None
        found[name] = text if key != name else json.dumps(text)
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in found.items()) + "}"


def call_options(given: dict[str, Any]) -> CallOptions:
    """The options as the app's own `.options(...)` takes them, checked by the same rules."""
    from stillhere.domain.options import check_call_options

    options = {name: given[name] for name in _OPTIONS if given[name] is not None}
    options |= {name: spell(given[name]) for name in _DURATIONS if given[name] is not None}
    try:
        check_call_options("enqueue", options)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    return cast("CallOptions", options)


def prepare(place: Place, name: str, args: str, options: CallOptions) -> NewJob[Any]:
    """The job, bound and checked as far as it can be here."""
    from stillhere.domain.plan import foreign_record, new_record
    from stillhere.handle import NewJob

    task = _task(place, name)
    if task is None:
        import msgspec

        record = foreign_record(name, options, (), msgspec.json.decode(args))
    else:
        record = new_record(task, options, *task.codec.decode_call(args))
    return NewJob(record, task, place.link)


def _task(place: Place, name: str) -> TaskDef | None:
    if place.app is None or place.app_path is None:
        return None
    from stillhere.discovery import load_tasks

    load_tasks(place.app)
    task: TaskDef | None = place.app.tasks.get(name)
    if task is None:
        known = place.app.tasks.names()
        raise UnknownTask(
            f"{place.app_path.path} has no task {name!r}{nearest(name, known)}. Nothing was enqueued. "
            "To send it all the same, name the store with --url: then no app is asked."
        )
    return task
