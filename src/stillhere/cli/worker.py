"""`stillhere worker APP`: turns the command line into a `WorkerSettings` and becomes the supervisor.

This process never imports the app: it watches over processes that do, and must not share their fate. So a wrong name of
an app is found by the first child, which tells it in one line. Only with ``-p 0`` there is no supervisor and no child.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import click

from stillhere.cli.kinds import DURATION, QUEUE, SIZE
from stillhere.cli.options import Choices, Verb
from stillhere.discovery import find_app_path
from stillhere.domain.durations import spell
from stillhere.worker import settings as defaults
from stillhere.worker.platforms import refuse_elsewhere

_MOST = 1_000
_SHORTEST_LEASE_MS = 500
_LONGEST_LEASE_MS = 86_400_000
_LONGEST_NAME = 64
_LEAST_MEMORY = 64 << 20


class _Worker(Verb):
    """The supervisor sets up its own logging, which must never block."""

    starts_logging = False


def _checked(settings: defaults.WorkerSettings) -> defaults.WorkerSettings:
    if not _SHORTEST_LEASE_MS <= settings.lease_ms <= _LONGEST_LEASE_MS:
        given, least, most = map(spell, (settings.lease_ms, _SHORTEST_LEASE_MS, _LONGEST_LEASE_MS))
        raise click.UsageError(f"--lease {given}: a lease is from {least} to {most} long.")
    if len(settings.name) > _LONGEST_NAME or not all(c.isalnum() or c in "._" for c in settings.name):
        raise click.UsageError(f"--name {settings.name!r}: letters, digits, '.' and '_', at most {_LONGEST_NAME}.")
    if 0 < settings.max_memory < _LEAST_MEMORY:
        raise click.UsageError(
            f"--max-memory {settings.max_memory}: a process needs {_LEAST_MEMORY >> 20}M or more. Write 512M, 2G; "
            "0: no limit."
        )
    return settings


def settings_of(choices: Choices, target: str | None, given: dict[str, Any]) -> defaults.WorkerSettings:
    """The settings; raises a usage error, or `ConfigurationError`."""
    from stillhere.cli.logs import level

    path = find_app_path(target or choices.app, os.environ)
    if path is None:
        raise click.UsageError(
            "Which app? stillhere worker pkg.module:app, or set STILLHERE_APP, or app in [tool.stillhere] of "
            "pyproject.toml."
        )
    return _checked(
        defaults.WorkerSettings(
            app=path.path,
            processes=given["processes"],
            slots=given["slots"],
            queues=dict(given["queue"]),
            lease_ms=given["lease"],
            grace_ms=given["grace"],
            overflow=given["overflow"],
            long_after_ms=given["long_after"],
            burst=given["burst"],
            name=given["name"],
            solo=given["solo"],
            max_jobs=given["max_jobs"],
            max_memory=given["max_memory"],
            retire_grace_ms=given["retire_grace"],
            url=choices.url,
            namespace=choices.namespace,
            log=choices.log,
            log_level=logging.getLevelName(level(verbose=choices.verbose, default=logging.INFO)).lower(),
        )
    )


@click.command(cls=_Worker)
@click.argument("target", required=False, metavar="[APP]")
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(0, _MOST),
    default=1,
    show_default=True,
    help="Worker processes; 0: this process is the worker, with its terminal, for `breakpoint()`.",
)
@click.option(
    "-c",
    "--slots",
    type=click.IntRange(1, _MOST),
    default=defaults.DEFAULT_SLOTS,
    show_default=True,
    help="Jobs at once in each process: 2 processes with 20 slots run 40.",
)
@click.option(
    "-q",
    "--queue",
    type=QUEUE,
    multiple=True,
    metavar="NAME[:WEIGHT]",
    help="Serve this queue (again for more); without it, all queues of the app's tasks.",
)
@click.option(
    "--lease",
    type=DURATION,
    default=spell(defaults.DEFAULT_LEASE_MS),
    show_default=True,
    help="A host that dies is noticed after 1.3 times this; a process that dies, at once.",
)
@click.option(
    "--grace",
    type=DURATION,
    default=spell(defaults.DEFAULT_GRACE_MS),
    show_default=True,
    help="When it is stopped, it is gone after this; the last 3 s (or 60 %) stop and hand over what runs.",
)
@click.option(
    "--overflow",
    type=click.IntRange(0, _MOST),
    help="Places in each process for jobs that turned out long.  [default: as many as slots]",
)
@click.option(
    "--long-after",
    type=DURATION,
    default=spell(defaults.DEFAULT_LONG_AFTER_MS),
    show_default=True,
    help="A job that runs longer gives its slot to others and goes on; 0: never.",
)
@click.option("--burst", is_flag=True, help="End when the queues are empty, of scheduled jobs too.")
@click.option("--name", default="", metavar="NAME", help="Stands in front of the worker's id, for people.")
@click.option(
    "--solo",
    type=click.IntRange(1, _MOST),
    default=defaults.default_solo(),
    help="At most so many jobs in processes of their own: those that ask for one, and those that may have killed one.",
)
@click.option(
    "--max-jobs",
    type=click.IntRange(0, 1_000_000_000),
    default=0,
    show_default=True,
    metavar="N",
    help="A process that has taken so many jobs takes no more, ends with them and is replaced; 0: never.",
)
@click.option(
    "--max-memory",
    type=SIZE,
    default="0",
    show_default=True,
    metavar="SIZE",
    help="A process with more (512M, 2G) takes no more jobs and is replaced; at 1.25 times it is killed; 0: never.",
)
@click.option(
    "--retire-grace",
    type=DURATION,
    default=spell(defaults.DEFAULT_RETIRE_GRACE_MS),
    show_default=True,
    help="A run that cannot be ended is killed with its process; the other runs there first get so long to end.",
)
@click.pass_obj
def worker(choices: Choices, /, target: str | None, **given: Any) -> int:
    """Run jobs of APP (pkg.module:app) until it is stopped.

    SIGTERM or Ctrl-C: take no more jobs, let those that run end within the grace period, hand the others over. A second
    signal: now.
    """
    refuse_elsewhere()
    settings = settings_of(choices, target, given)
    if settings.processes == 0:
        from stillhere.cli.foreground import run as run_here

        return run_here(settings)
    from stillhere.worker.supervisor.main import run

    return run(settings)
