"""The loader: headers are read, inputs get their names, every script runs on every server, unknown ones are loaded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from stillhere.backends.redis import scripts as loader
from stillhere.backends.redis.backend import SyncRedisStore
from stillhere.backends.redis.connection import Endpoint
from stillhere.backends.redis.scripts import SCRIPTS, Input, Scripts, compose, read_header, stems
from stillhere.backends.redis.verbs import Codec
from stillhere.domain.job import Verdict
from stillhere.ports import backend, inspector
from stillhere.ports.backend import Claim, End, Enqueue, Renew, Tick, Verb
from tests.redis.kit import MakeQueue, Queue

LUA = Path(loader.__file__).parent / "lua"
VERBS: list[type[Verb[object]]] = [
    kind
    for module in (backend, inspector)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Verb) and kind is not Verb and kind.__module__ == module.__name__
]


def test_every_verb_has_a_script_and_every_script_a_verb() -> None:
    assert sorted(verb.__name__.lower() for verb in VERBS) == stems()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_script_asks_for_attributes_that_its_verb_has(verb: type[Verb[object]]) -> None:
    codec = Codec(verb, SCRIPTS)
    names = [slot.name for slot in codec.script.inputs]
    assert set(names) == set(verb.__struct_fields__) - {"queue"}


@pytest.mark.parametrize("stem", stems())
def test_a_script_names_guarantees_that_the_port_knows(stem: str) -> None:
    known = set(re.findall(r"^(G\d+) ", backend.__doc__ or "", re.MULTILINE))
    assert set(SCRIPTS[stem].guarantees) <= known


def test_no_script_counts_positions() -> None:
    assert not [path.name for path in LUA.glob("*.lua") if "ARGV[" in path.read_text().replace("-- ", "")]


@pytest.mark.parametrize("stem", stems())
def test_each_script_compiles_on_each_server(q: Queue, stem: str) -> None:
    assert q.raw.script_load(SCRIPTS[stem].text.decode()) == SCRIPTS[stem].sha.decode()


HEADER = """-- What it does.
--
-- mode: write
-- uses: lanes ends
-- args: worker n:int held:list force:flag
-- reply: nothing
-- guarantees: G2 G9

-- mode: read
return 1
"""


class TestHeader:
    def test_it_names_the_inputs_and_their_kinds(self) -> None:
        header = read_header("x", HEADER)
        kinds = (Input("worker", "text"), Input("n", "int"), Input("held", "list"), Input("force", "flag"))
        assert header.inputs == kinds
        assert (header.mode, header.uses, header.guarantees) == ("write", ("lanes", "ends"), ("G2", "G9"))

    def test_it_ends_with_the_comment_at_the_top(self) -> None:
        assert read_header("x", HEADER).mode == "write"

    @pytest.mark.parametrize(
        ("line", "instead"),
        [
            ("-- mode: write\n", ""),
            ("-- mode: write\n", "-- mode: sometimes\n"),
            ("-- reply: nothing\n", ""),
            ("-- guarantees: G2 G9\n", ""),
            ("n:int", "n:number"),
        ],
    )
    def test_an_incomplete_one_is_refused(self, line: str, instead: str) -> None:
        with pytest.raises(ValueError, match=r"^x\.lua: its header needs"):
            read_header("x", HEADER.replace(line, instead, 1))

    def test_the_text_begins_with_the_inputs_by_name(self) -> None:
        text, _ = compose("claim")
        assert text.splitlines()[2] == (
            "local NOW, queue, worker, n, slots, long, lanes, seated = "
            "tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], "
            "cmsgpack.unpack(ARGV[8])"
        )


class TestUnknownScripts:
    """A server that was restarted, failed over or flushed knows no script, and says so before it runs anything."""

    def test_one_call_loads_and_repeats(self, q: Queue) -> None:
        q.enqueue("a")
        q.raw.script_flush()
        assert q.enqueue("a", "b")[1].created
        assert q.lane("5:m") == ["a", "b"]

    def test_in_a_pipeline_only_the_unknown_ones_run_again(self, q: Queue) -> None:
        q.register("w")
        q.raw.script_flush()
        q.call(Tick(queue="q"))
        verbs: list[Verb[Any]] = [
            Tick(queue="q"),
            Enqueue(queue="q", jobs=[]),
            Claim(queue="q", worker="w", n=1, slots=1),
            Tick(queue="q"),
        ]
        before = q.tick()
        q.now += 10
        replies = q.store.call_many(verbs)
        assert [type(reply).__name__ for reply in replies] == ["Ticked", "list", "Claimed", "Ticked"]
        assert q.tick() == before + 10

    def test_verbs_keep_their_order_when_only_the_later_one_is_known(self, q: Queue) -> None:
        """The supervisor's last word before an end: run the other way round, a culprit would go free."""
        q.register("w")
        q.enqueue("a")
        q.claim("w")
        q.raw.script_flush()
        q.raw.script_load(SCRIPTS["end"].text.decode())
        fresh = SyncRedisStore(Endpoint(q.server.url), q.namespace, clock=lambda: q.now)
        end = End(queue="q", worker="w", reason="SIGSEGV", force=True, default=Verdict.CULPRIT)
        verbs: list[Verb[Any]] = [Renew(queue="q", worker="w", answered=1), end]
        fresh.call_many(verbs)
        fresh.close()
        assert q.look("a").losses == 1

    def test_a_script_that_the_server_cannot_compile_is_named(self, make_queue: MakeQueue) -> None:
        q = make_queue(scripts=Scripts(mutate=lambda _, text: text + "\nthis is not Lua"), sound=False)
        with pytest.raises(Exception, match=r"^Refused by .*: tick \(.*ompil"):
            q.call(Tick(queue="q"))


def test_a_test_can_run_a_broken_script(make_queue: MakeQueue) -> None:
    seen: list[str] = []

    def mutate(stem: str, text: str) -> str:
        seen.append(stem)
        return text.replace("lease + math.min(step, gap)", "lease + step")

    broken = make_queue(scripts=Scripts(mutate))
    broken.tick()
    broken.now += 60_000
    assert broken.tick() == 60_000
    assert seen == ["tick"]
    assert b"math.min(step, gap)" in SCRIPTS["tick"].text, "the process's own scripts are untouched"
