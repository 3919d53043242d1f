"""The inbox: the door for producers in other languages, who send a bare XADD; and entries that are no jobs at all."""

from __future__ import annotations

import json
import socket

import pytest

from stillhere.domain.job import OutcomeKind
from stillhere.ports.backend import Retry
from tests.redis.kit import START, Queue, xadd


class TestAGoodEntry:
    def test_it_becomes_a_job_with_defaults_and_the_entrys_id(self, q: Queue) -> None:
        q.register("w")
        entry = xadd(q.raw, q.key("inbox"), "task", "t", "args", '{"domain":"example.com"}')
        (grant,) = q.take("w")
        assert (grant.id, grant.task, grant.args, grant.priority) == (entry, "t", '{"domain":"example.com"}', 5)
        assert q.raw.xlen(q.key("inbox")) == 0
        assert q.settle("w", grant, OutcomeKind.SUCCEEDED).status == "ok"

    def test_all_that_it_may_say(self, q: Queue) -> None:
        q.register("w")
        words = {
            "task": "t", "id": "order-17", "unique": "17", "priority": "0", "headers": '{"traceparent":"00-1"}',
            "due": str(START + 5_000), "max_attempts": "2", "tenant": "acme", "lane": "solo",
        }  # fmt: skip
        xadd(q.raw, q.key("inbox"), *(word for pair in words.items() for word in pair))
        assert q.take("w") == []
        record = q.look("order-17")
        assert (record.state, record.due, record.args) == ("scheduled", START + 5_000, "{}")
        q.now += 5_000
        assert q.take("w") == []
        (grant,) = q.take("w", 1, "solo")
        assert (grant.priority, grant.max_attempts, grant.headers) == (0, 2, {"traceparent": "00-1"})
        assert (q.look("order-17").unique, q.look("order-17").lane) == ("17", "solo")
        assert q.job_hash("order-17")["tenant"] == "acme"

    def test_the_same_id_or_a_live_unique_key_twice_is_one_job(self, q: Queue) -> None:
        q.register("w")
        for unique in ("k", "k", "other"):
            xadd(q.raw, q.key("inbox"), "task", "t", "id", "a", "unique", unique)
        xadd(q.raw, q.key("inbox"), "task", "t", "id", "b", "unique", "k")
        assert [grant.id for grant in q.take("w")] == ["a"]

    def test_it_cannot_set_what_only_the_store_writes(self, q: Queue) -> None:
        q.register("w")
        xadd(
            q.raw, q.key("inbox"), "task", "t", "id", "a", "state", "dead", "token", "9" * 15, "_cancel", "x", "v", "9"
        )
        (grant,) = q.take("w")
        assert grant.token == START * 1000
        assert q.look("a").cancelling is False
        assert q.job_hash("a")["v"] == "1"

    def test_a_call_takes_in_a_bounded_number(self, q: Queue) -> None:
        q.register("w")
        for number in range(130):
            xadd(q.raw, q.key("inbox"), "task", "t", "id", f"j{number:03}")
        assert q.status().inbox == 130
        assert len(q.take("w", slots=1_000)) == 100
        assert len(q.take("w", slots=1_000)) == 30

    def test_typed_into_a_bare_socket(self, q: Queue) -> None:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(q.server.socket))
            line.sendall(f'XADD {q.key("inbox")} * task t args "{{\\"n\\":1}}"\r\n'.encode())
            entry = line.recv(100).split()[1].decode()
        q.register("w")
        assert [(grant.id, grant.args) for grant in q.take("w")] == [(entry, '{"n":1}')]


BAD: dict[str, tuple[str | bytes, ...]] = {
    "no task": ("args", "{}"),
    "a lane that is none": ("task", "t", "lane", "pool"),
    "an empty task": ("task", ""),
    "a task whose unique keys would mix with another's": ("task", "a:b"),
    "args that are no object": ("task", "t", "args", "[1,2]"),
    "args that are no JSON": ("task", "t", "args", '{"a":'),
    "bytes": ("task", "t", "args", b'{"a":"\xff"}'),
    "an overlong sequence": ("task", "t", "args", b'{"a":"\xc0\xaf"}'),
    "half a surrogate": ("task", "t", "args", b'{"a":"\xed\xa0\x80"}'),
    "a cut sequence": ("task", "t", "args", b'{"a":"\xe2\x82"}'),
    "a bad id": ("task", "t", "id", "a b"),
    "a priority out of range": ("task", "t", "priority", "17"),
    "a due time in words": ("task", "t", "due", "tomorrow"),
    "headers that are no object": ("task", "t", "headers", "[]"),
    "headers of numbers": ("task", "t", "headers", '{"a":1}'),
    "headers that are too big": ("task", "t", "headers", '{"a":"' + "x" * 5_000 + '"}'),
    "an empty unique key": ("task", "t", "unique", ""),
}


class TestABadEntry:
    @pytest.mark.parametrize("words", BAD.values(), ids=BAD)
    def test_it_is_a_dead_letter_and_the_worker_goes_on(self, q: Queue, words: tuple[str | bytes, ...]) -> None:
        q.register("w")
        entry = xadd(q.raw, q.key("inbox"), *words)
        q.enqueue("good")
        reply = q.claim("w")
        assert [grant.id for grant in reply.jobs] == ["good"]
        assert reply.dropped == [entry]
        letter = q.look(entry)
        assert (letter.state, letter.reason) == ("dead", "undecodable")
        assert json.loads(letter.error or "")["type"] == "UndecodableRecord"
        assert q.status().dead == 1

    def test_it_keeps_its_own_id_and_what_it_said(self, q: Queue) -> None:
        q.register("w")
        xadd(q.raw, q.key("inbox"), "task", "send_mail", "id", "mail-7", "args", "[]")
        assert q.claim("w").dropped == ["mail-7"]
        letter = q.look("mail-7")
        assert (letter.task, json.loads(letter.args or "")) == (
            "send_mail",
            {"task": "send_mail", "id": "mail-7", "args": "[]"},
        )

    def test_it_cannot_overwrite_a_job(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a", args='{"n":1}')
        entry = xadd(q.raw, q.key("inbox"), "task", "t", "id", "a", "args", "nonsense")
        reply = q.claim("w")
        assert reply.dropped == [entry]
        assert [grant.args for grant in reply.jobs] == ['{"n":1}']

    def test_it_cannot_be_retried(self, q: Queue) -> None:
        q.register("w")
        entry = xadd(q.raw, q.key("inbox"), "nothing", "useful")
        q.claim("w")
        assert q.call(Retry(queue="q", job=entry)).changed is False


@pytest.mark.parametrize("text", ["schön", "€", "🚲", "\u0800\uffff\U00010000\U0010ffff", "\x7f\x80"])
def test_text_in_any_language_is_taken(q: Queue, text: str) -> None:
    q.register("w")
    args = json.dumps({"a": text}, ensure_ascii=False)
    xadd(q.raw, q.key("inbox"), "task", "t", "args", args)
    assert [grant.args for grant in q.take("w")] == [args]


class TestEntriesOnALane:
    def test_one_put_there_by_hand_is_a_dead_letter(self, q: Queue) -> None:
        q.register("w")
        entry = xadd(q.raw, q.key("s:5:m"), "task", "t", "args", "{}")
        q.enqueue("good")
        reply = q.claim("w")
        assert [grant.id for grant in reply.jobs] == ["good"]
        assert reply.dropped == [f"entry-{entry}"]
        assert q.look(f"entry-{entry}").reason == "undecodable"
        assert q.lane("5:m") == ["good"]

    def test_one_that_names_no_job_is_dropped_and_named(self, q: Queue) -> None:
        q.register("w")
        xadd(q.raw, q.key("s:5:m"), "id", "ghost")
        assert q.claim("w").dropped == ["ghost"]
        assert q.raw.xlen(q.key("s:5:m")) == 0

    def test_a_second_entry_of_a_job_grants_nothing(self, q: Queue) -> None:
        q.register("w")
        q.enqueue("a")
        for _ in range(3):
            xadd(q.raw, q.key("s:0:m"), "id", "a")
        assert [grant.id for grant in q.take("w")] == ["a"]
        assert q.raw.xlen(q.key("s:0:m")) == 0

    @pytest.mark.parametrize("broken", [{"args": "12"}, {"v": "one"}, {"task": None}])
    def test_a_record_that_is_no_job_is_a_dead_letter(self, q: Queue, broken: dict[str, str | None]) -> None:
        q.register("w")
        q.enqueue("a", "b")
        for name, value in broken.items():
            if value is None:
                q.raw.hdel(q.key("j:a"), name)
            else:
                q.raw.hset(q.key("j:a"), name, value)
        reply = q.claim("w")
        assert [grant.id for grant in reply.jobs] == ["b"]
        assert reply.dropped == ["a"]
        assert (q.look("a").state, q.look("a").reason) == ("dead", "undecodable")

    def test_much_garbage_does_not_hold_up_a_call(self, q: Queue) -> None:
        q.register("w")
        for number in range(250):
            xadd(q.raw, q.key("s:5:m"), "id", f"ghost{number}")
        q.enqueue("good")
        assert len(q.claim("w", slots=5).dropped) <= 105
        while not (jobs := q.take("w")):
            pass
        assert [job.id for job in jobs] == ["good"]
