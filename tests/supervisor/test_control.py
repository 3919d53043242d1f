"""The control socket: one object a line, bounded, never waiting for the other side."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhere.worker.control import MAX_LINE, MAX_WAITING, Channel

Pair = tuple[Channel, Channel]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    yield ours, other
    ours.close()
    other.close()


def test_messages_arrive_in_order_and_whole(pair: Pair) -> None:
    ours, theirs = pair
    assert all(ours.send(m="n", n=n) for n in range(100))
    assert [message["n"] for message in theirs.receive()] == list(range(100))


def test_a_side_that_does_not_read_stops_nobody_and_loses_the_newest(pair: Pair) -> None:
    ours, theirs = pair
    text = "x" * 10_000
    sent = 0
    while ours.send(n=sent, text=text):
        sent += 1
    assert ours.waiting
    assert ours.dropped == 1
    assert sent > MAX_WAITING
    seen: list[int] = []
    while len(seen) < sent:
        seen += [message["n"] for message in theirs.receive()]
        ours.flush()
    assert seen == list(range(sent))


def test_the_end_of_the_other_side_is_seen_after_its_last_words(pair: Pair) -> None:
    ours, theirs = pair
    ours.send(m="bye")
    ours.close()
    assert [message["m"] for message in theirs.receive()] == ["bye"]
    assert theirs.eof
    assert not theirs.send(m="x") or theirs.receive() == []


def test_what_was_put_back_comes_first(pair: Pair) -> None:
    ours, theirs = pair
    ours.send(n=1)
    ours.send(n=2)
    came = theirs.receive()
    theirs.unread(came[1:])
    ours.send(n=3)
    assert [message["n"] for message in theirs.receive()] == [2, 3]


@given(st.lists(st.binary(max_size=40)), st.integers(1, 7))
def test_noise_is_skipped_and_counted_wherever_it_is_cut(lines: list[bytes], size: int) -> None:
    ours, sock = Channel.pair()
    noise = b"".join(line.replace(b"\n", b"") + b"\n" for line in lines) + b'{"m":"last"}\n'
    sock.setblocking(True)
    seen = []
    for at in range(0, len(noise), size):
        sock.sendall(noise[at : at + size])
        seen += ours.receive()
    assert seen[-1] == {"m": "last"}
    assert len(seen) + ours.dropped == len(lines) + 1
    ours.close()
    sock.close()


def test_a_line_without_end_is_given_up_and_the_next_one_read(pair: Pair) -> None:
    ours, theirs = pair
    assert not ours.send(text="x" * MAX_LINE)
    raw = b"y" * (1 << 15)
    for _ in range(2 * MAX_LINE // len(raw)):
        ours._sock.send(raw)
        theirs.receive()
    ours._sock.send(b"\n")
    ours.send(m="next")
    assert [message["m"] for message in theirs.receive()] == ["next"]
    assert theirs.dropped == 1


def test_a_fork_lets_go_of_the_channel(pair: Pair) -> None:
    ours, theirs = pair
    pid = os.fork()
    if pid == 0:
        os._exit(0 if theirs.fileno() == -1 and ours.fileno() == -1 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert ours.send(m="still here")
