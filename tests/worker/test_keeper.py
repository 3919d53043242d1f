"""The keeper: the own voice beside the loop, in a real thread on a fake store; each wait is for an event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stillhere.domain.job import Grant
from stillhere.ports.backend import Beat, BeatReply, Held
from stillhere.worker.child.keeper import Keeper, beats
from stillhere.worker.clock import boottime_ns
from stillhere.worker.control import Channel
from tests.support.procs import eventually
from tests.worker.kit import AWAY, Desk, FakeStore, SyncFace, grant

LEASE_MS = 500


class Bench:
    def __init__(self) -> None:
        self.store, self.desk = FakeStore(), Desk("q", "r", lease_ms=LEASE_MS)
        self.ours, theirs = Channel.pair()
        self.theirs = Channel(theirs)
        self.replies: list[tuple[str, list[Beat], list[BeatReply]]] = []
        self.messages: list[Any] = []
        self.failures: list[BaseException] = []
        self.orphaned = threading.Event()
        self.keeper = Keeper(
            SyncFace(self.store),
            self.desk.identity,
            self.desk.holdings,
            self.theirs,
            on_reply=lambda *said: self.replies.append(said),
            on_message=self.messages.append,
            on_orphan=self.orphaned.set,
            on_failure=self.failures.append,
        )

    @property
    def beats(self) -> list[Beat]:
        return self.store.of(Beat)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.keeper.start()
    yield made
    made.keeper.stop()
    made.keeper.join(5)
    made.ours.close()
    made.theirs.close()
    assert not made.keeper.is_alive()


def test_g13_it_renews_all_queues_in_one_trip_and_says_what_is_held(bench: Bench) -> None:
    bench.desk.take(grant("a", queue="r", token=3))
    bench.desk.board.answer(1, 8)
    bench.keeper.begin()
    eventually(lambda: len(bench.store.trips) >= 3, 5)
    trip = bench.store.trips[0]
    assert [(beat.queue, beat.answered, list(beat.held)) for beat in trip] == [("q", 0, []), ("r", 8, [Held("a", 3)])]
    assert {beat.worker for beat in bench.beats} == {bench.desk.identity.worker}
    eventually(lambda: len(bench.replies) >= 3, 5)


def test_it_says_nothing_before_the_worker_is_registered(bench: Bench) -> None:
    eventually(lambda: bench.desk.board.read("keeper_tick_ns") > 0, 5)
    assert bench.beats == []


def test_the_send_of_a_confirmed_beat_is_on_the_board(bench: Bench) -> None:
    before = boottime_ns()
    bench.desk.board.write("child_sent_ns", 0)
    bench.keeper.begin()
    eventually(lambda: bench.desk.board.read("child_sent_ns") >= before, 5)
    assert bench.desk.board.read("child_sent_ns") <= boottime_ns()


def test_a_worker_that_is_gone_is_not_confirmed(bench: Bench) -> None:
    bench.store.reply[Beat] = lambda _: BeatReply(standing="gone")
    bench.desk.board.write("child_sent_ns", 1)
    bench.keeper.begin()
    eventually(lambda: bench.replies, 5)
    bench.keeper.hold()
    assert bench.desk.board.read("child_sent_ns") == 1
    assert bench.replies[0][2][0].standing == "gone"


def test_g12_a_beat_that_fails_is_soon_tried_again(bench: Bench) -> None:
    failing = 3

    def reply(_: Beat) -> BeatReply:
        nonlocal failing
        failing -= 1
        if failing >= 0:
            raise AWAY
        return BeatReply(standing="ok")

    bench.store.reply[Beat] = reply
    bench.keeper.begin()
    eventually(lambda: bench.replies, 5)
    assert len(bench.store.trips) >= 4


def test_a_voice_that_is_not_heard_is_mute_until_it_is(bench: Bench) -> None:
    def away(_: Beat) -> BeatReply:
        raise AWAY

    well, bench.store.reply[Beat] = bench.store.reply[Beat], away
    bench.keeper.begin()
    assert not bench.keeper.mute
    eventually(lambda: bench.keeper.mute, 5)
    bench.store.reply[Beat] = well
    eventually(lambda: not bench.keeper.mute, 5)


def test_a_drain_lowers_the_own_lease_at_once(bench: Bench) -> None:
    bench.keeper.begin()
    eventually(lambda: bench.beats, 5)
    bench.keeper.shorten()
    eventually(lambda: bench.beats[-1].lease_ms == LEASE_MS, 5)
    assert bench.beats[0].lease_ms is None


def test_a_long_lease_is_lowered_to_five_seconds() -> None:
    desk = Desk(lease_ms=30_000)
    keeper = Keeper(
        SyncFace(FakeStore()),
        desk.identity,
        desk.holdings,
        None,
        on_reply=lambda *_: None,
        on_message=lambda _: None,
        on_orphan=lambda: None,
        on_failure=lambda _: None,
    )
    keeper.shorten()
    assert keeper._lease_ms == 5_000
    assert desk.identity.plan.length_s == 30.0, "no doubt by a length that the store has not been told"
    keeper._beating = True
    keeper._beat()
    assert desk.identity.plan.length_s == 5.0


def test_messages_of_the_supervisor_arrive(bench: Bench) -> None:
    bench.ours.send(m="drain")
    bench.ours.send(m="gone", worker="w")
    eventually(lambda: len(bench.messages) == 2, 5)
    assert bench.messages == [{"m": "drain"}, {"m": "gone", "worker": "w"}]


def test_g13_the_end_of_the_supervisor_is_noticed_and_the_voice_goes_on(bench: Bench) -> None:
    bench.keeper.begin()
    bench.ours.close()
    assert bench.orphaned.wait(5)
    said = len(bench.beats)
    eventually(lambda: len(bench.beats) >= said + 4, 5)


def test_a_mistake_in_this_thread_is_the_worker_s_end(bench: Bench) -> None:
    def breaks(_: Beat) -> BeatReply:
        raise ZeroDivisionError

    bench.store.reply[Beat] = breaks
    bench.keeper.begin()
    eventually(lambda: bench.failures, 5)
    assert isinstance(bench.failures[0], ZeroDivisionError)


def test_an_answer_for_an_id_that_is_no_more_is_dropped(bench: Bench) -> None:
    def reply(_: Beat) -> BeatReply:
        bench.desk.identity.renew_id()
        bench.keeper.hold()
        return BeatReply(standing="gone")

    bench.store.reply[Beat] = reply
    bench.keeper.begin()
    eventually(lambda: bench.beats, 5)
    bench.keeper.stop()
    bench.keeper.join(5)
    assert bench.replies == []


class Moving:
    """A board on which a claim is answered between any two looks, as another thread may do."""

    def __init__(self, desk: Desk, arrive: Callable[[], None]) -> None:
        self._desk, self._arrive = desk, arrive

    def answered(self, index: int) -> int:
        number = self._desk.board.answered(index)
        self._arrive()
        return number


def test_g13_what_is_answered_is_read_before_what_is_held() -> None:
    desk = Desk()
    count = iter(range(1, 100))

    def arrive() -> None:
        """The fetcher's order: held first, then answered."""
        number = next(count)
        desk.take(Grant(id=f"j{number}", queue="q", token=number, task="t", args="{}"))
        desk.board.answer(0, number)

    desk.identity.board = Moving(desk, arrive)  # type: ignore[assignment]
    (first,) = beats(desk.identity, desk.holdings)
    (second,) = beats(desk.identity, desk.holdings)
    for beat in (first, second):
        held = {pair.token for pair in beat.held}
        assert set(range(1, beat.answered + 1)) <= held, "a grant that is called answered must be called held"
    assert len(second.held) > second.answered
