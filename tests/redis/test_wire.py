"""The record on the wire: golden records of version 1, its JSON Schema, unknown fields, and bytes that are no text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stillhere.backends.redis.verbs import clean, packed
from stillhere.domain.job import JobRecord, OutcomeKind, Verdict
from stillhere.ports.backend import Cancel, Checkpoint, Retry
from tests.redis.golden_story import GOLDEN, STORIES, kept, record_of
from tests.redis.kit import START, MakeQueue, Queue

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "wire" / "job-v1.schema.json").read_text(encoding="utf-8")
)


def faults(record: dict[str, str], schema: dict[str, Any] = SCHEMA) -> list[str]:
    """What the schema has against a record; it knows the few words that the schema uses."""
    found = [f"{name} is missing" for name in schema["required"] if name not in record]
    for name, value in record.items():
        rule = schema["properties"].get(name, {"type": "string"})
        rule = rule | schema["$defs"].get(rule.get("$ref", "").rpartition("/")[2], {})
        assert set(rule) <= {"type", "const", "enum", "pattern", "minLength", "description", "$ref"}, rule
        fits = (
            value == rule.get("const", value)
            and value in rule.get("enum", [value])
            and len(value) >= rule.get("minLength", 0)
            and re.search(rule.get("pattern", ""), value) is not None
        )
        if not fits:
            found.append(f"{name}={value!r}")
    return found


class TestGoldenRecords:
    @pytest.mark.parametrize("story", STORIES)
    def test_a_job_in_this_state_is_this_hash(self, q: Queue, story: str) -> None:
        assert record_of(q, story) == kept(story)

    @pytest.mark.parametrize("story", STORIES)
    def test_it_fits_the_schema(self, story: str) -> None:
        assert faults(kept(story)) == []

    def test_every_kept_record_has_its_story(self) -> None:
        assert sorted(path.stem for path in GOLDEN.glob("*.json")) == sorted(STORIES)

    @pytest.mark.parametrize("story", STORIES)
    def test_a_kept_record_can_be_read(self, make_queue: MakeQueue, story: str) -> None:
        q = make_queue(sound=False)
        record = kept(story)
        q.raw.hset(q.key("j:job"), mapping=record)
        looked = q.look("job")
        for name in {"v", "priority", "created", "due", "started", "ended", "failures", "losses", "token"} & set(
            record
        ):
            assert getattr(looked, name) == int(record[name]), name
        for name in {"task", "state", "args", "result", "error", "reason", "worker", "unique", "progress"} & set(
            record
        ):
            assert getattr(looked, name) == record[name], name
        assert looked.runs == record.get("runs", "").splitlines()
        assert looked.cancelling is ("_cancel" in record)
        assert looked.headers == json.loads(record.get("headers", "{}"))

    def test_the_schema_knows_every_field_of_the_record(self) -> None:
        said = set(SCHEMA["properties"]) - {"unique_until"}
        assert said == set(JobRecord.__struct_fields__) - {"cancelling"}

    @pytest.mark.parametrize(
        ("name", "value"), [("state", "blocked"), ("v", "2"), ("created", "yesterday"), ("id", "a b"), ("args", "[1]")]
    )
    def test_the_schema_can_say_no(self, name: str, value: str) -> None:
        assert faults(kept("v1-running") | {name: value}) == [f"{name}={value!r}"]


class TestUnknownFields:
    """Another version, or a program in another language, may keep fields of its own in a record."""

    def test_they_survive_every_move(self, q: Queue) -> None:
        q.register("w")
        q.register("v")
        q.enqueue("a", delay_ms=10)
        q.raw.hset(q.key("j:a"), "tenant", "acme")
        q.now += 20
        (grant,) = q.take("w")
        q.settle("w", grant, OutcomeKind.RETRY, delay_ms=10)
        q.now += 20
        q.take("w")
        q.end("w", Verdict.INTERRUPTED)
        (grant,) = q.take("v")
        q.settle("v", grant, OutcomeKind.DEAD)
        assert q.call(Retry(queue="q", job="a")).changed
        (grant,) = q.take("v")
        q.settle("v", grant, OutcomeKind.SUCCEEDED, retention_ms=0)
        assert q.job_hash("a")["tenant"] == "acme"
        assert q.look("a").state == "succeeded"


class TestBytesThatAreNoText:
    def test_a_grant_with_broken_bytes_is_not_lost(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", "b")
        q.raw.hset(q.key("j:a"), "args", b'{"name":"\xff\xfe"}')
        jobs = q.take("w")
        assert [(job.id, job.args) for job in jobs] == [("a", '{"name":"\ufffd\ufffd"}'), ("b", "{}")]
        assert jobs[0].token == q.look("a").token == START * 1000

    def test_a_record_with_broken_bytes_can_be_read(self, q: Queue) -> None:
        q.enqueue("a", headers={"x": "y" * 300}, unique="k" * 70_000)
        q.raw.hset(q.key("j:a"), "checkpoint", b"\xc3")
        record = q.look("a")
        assert record.checkpoint == "\ufffd"
        assert record.headers == {"x": "y" * 300}
        assert record.unique == "k" * 70_000
        assert record.cancelling is False

    def test_half_a_surrogate_is_replaced_on_the_way_in(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        (grant,) = q.take("w")
        write = Checkpoint(queue="q", worker="w", job="a", token=grant.token, number=1, value='"\ud800"')
        assert q.call(write) == "ok"
        assert q.settle("w", grant, OutcomeKind.DEAD, error='{"message":"\udcff"}').status == "ok"
        assert q.look("a").error == '{"message":"?"}'
        assert q.look("a").checkpoint == '"?"'

    def test_whole_text_is_left_as_it_is(self) -> None:
        assert clean("schön 🚲") == "schön 🚲"
        assert msgspec.msgpack.decode(packed({"a": ["schön", 1, None]})) == {"a": ["schön", 1, None]}


def test_values_come_back_as_they_were_sent(q: Queue) -> None:
    q.register("w")
    args = '{"text":"quote \\" slash / null \\u0000 schön 🚲","n":NaN,"big":' + "9" * 40 + "}"
    q.enqueue("a", args=args, headers={"a/b": 'c"\\/d'}, unique="with space\nand line")
    (grant,) = q.take("w")
    assert grant.args == args
    assert grant.headers == {"a/b": 'c"\\/d'}
    assert json.loads(q.job_hash("a")["headers"]) == {"a/b": 'c"\\/d'}
    for text in ("null", "5", "true", '""', "[]"):
        number = ("null", "5", "true", '""', "[]").index(text) + 1
        write = Checkpoint(queue="q", worker="w", job="a", token=grant.token, number=number, value=text)
        assert q.call(write) == "ok"
        assert q.look("a").checkpoint == text
    q.settle("w", grant, OutcomeKind.SUCCEEDED, result="null")
    assert q.look("a").result == "null"
    assert q.look("a").unique == "with space\nand line"
    assert q.call(Cancel(queue="q", job="a")).changed is False
