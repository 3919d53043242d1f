"""A proxy that does to connections what networks do: slow, hanging, one-way, cut, or losing exactly one reply.

It listens on a loopback port and forwards to a unix socket or a port. It runs on a thread of its own with an event
loop; every method may be called from the test's thread and has taken effect when it returns.

    passing    bytes go through, `delay_s` later if that is set
    holding    bytes wait, in one direction or both, and arrive late: a stopped router
    swallowing bytes are taken and gone: a forgotten flow. Nobody is told; a connection that lost bytes stays silent in
               that direction for ever, also after `heal`, as its stream has a hole. New ones are accepted, too
    refusing   new connections are closed at once

`cut` ends connections. `lose_reply` and `lose_request` wait for one request that has certain bytes in it and lose that
request, or forward it and lose its reply: the store has done it and the caller does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Direction = Literal["up", "down"]
How = Literal["hang", "cut"]
T = TypeVar("T")

_SEEN = 1 << 16
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Weather:
    """How the network is at the moment."""

    delay_s: float = 0.0
    hold: frozenset[Direction] = frozenset()
    swallow: frozenset[Direction] = frozenset()
    refuse: bool = False


@dataclass
class Trap:
    """Waits for one request; `sprung` is set when it has come."""

    match: Callable[[bytes], bool]
    loses: Direction
    how: How
    sprung: threading.Event = field(default_factory=threading.Event)


class Connection:
    """One client's way through."""

    def __init__(self, number: int, writers: dict[Direction, asyncio.StreamWriter]) -> None:
        self.number = number
        self.writers = writers
        self.silent: set[Direction] = set()
        self.seen = b""
        """The last 64 kB that the client sent."""
        self.request = b""
        """What it sent since the last reply."""
        self.bytes: dict[Direction, int] = {"up": 0, "down": 0}
        self.cut_at_reply = False

    def end(self, *, reset: bool) -> None:
        """Close both sides at once; with `reset` the peers see ECONNRESET where there is such a thing."""
        for writer in self.writers.values():
            sock = writer.get_extra_info("socket")
            if reset and sock is not None and sock.family == socket.AF_INET:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()


class Proxy:
    """See above. `url` is for the program under test."""

    def __init__(self, upstream: str | tuple[str, int]) -> None:
        self._upstream = upstream
        self._weather = Weather()
        self._traps: list[Trap] = []
        self._open: dict[int, Connection] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"redis://127.0.0.1:{self.port}/0"

    # ---------------------------------------------------------------------------------------------- the weather

    def heal(self) -> None:
        """All passes again, at once; what was held arrives now. Traps stay."""
        self._set(Weather())

    def delay(self, seconds: float) -> None:
        """Each piece arrives this much later, in both directions."""
        self._set(Weather(delay_s=seconds))

    def hold(self, *directions: Direction) -> None:
        """Keep bytes back until `heal`; both ways unless said otherwise."""
        self._set(Weather(hold=frozenset(directions or ("up", "down"))))

    def blackhole(self, *directions: Direction) -> None:
        """Take bytes and lose them, without a word to anybody; both ways unless said otherwise."""
        self._set(Weather(swallow=frozenset(directions or ("up", "down"))))

    def refuse(self) -> None:
        """Cut all connections, and each new one at once."""
        self._set(Weather(refuse=True))
        self.cut()

    def cut(self, which: Callable[[Connection], bool] = lambda _: True, *, reset: bool = True) -> int:
        """End the connections there are now (or some of them); how many that were."""

        async def cut() -> int:
            chosen = [connection for connection in self._open.values() if which(connection)]
            for connection in chosen:
                connection.end(reset=reset)
            return len(chosen)

        return self._do(cut())

    def lose_reply(self, match: bytes | Callable[[bytes], bool], how: How = "hang") -> Trap:
        """The next request like this is carried out, and its reply lost: the caller waits for ever, or is cut off."""
        return self._lay(match, "down", how)

    def lose_request(self, match: bytes | Callable[[bytes], bool], how: How = "hang") -> Trap:
        """The next request like this never arrives."""
        return self._lay(match, "up", how)

    def connections(self) -> list[Connection]:
        """Those that are open, oldest first."""

        async def look() -> list[Connection]:
            return list(self._open.values())

        return self._do(look())

    def close(self) -> None:
        """End everything, the thread too."""
        if self._loop.is_closed():
            return

        async def close() -> None:
            self._server.close()
            for connection in self._open.values():
                connection.end(reset=False)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._server.wait_closed()
            await asyncio.sleep(0)  # transports close their sockets one turn after they were told to

        self._do(close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    # ---------------------------------------------------------------------------------------------- on the loop

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(10)

    def _set(self, weather: Weather) -> None:
        async def set_() -> None:
            self._weather = weather
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()

        self._do(set_())

    def _lay(self, match: bytes | Callable[[bytes], bool], loses: Direction, how: How) -> Trap:
        pattern = match
        trap = Trap((lambda request: pattern in request) if isinstance(pattern, bytes) else pattern, loses, how)

        async def lay() -> None:
            self._traps.append(trap)

        self._do(lay())
        return trap

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self._weather.refuse:
                await self._carry(reader, writer)
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if isinstance(self._upstream, str):
                far_reader, far_writer = await asyncio.open_unix_connection(self._upstream)
            else:
                far_reader, far_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            return
        connection = Connection(next(self._numbers), {"up": far_writer, "down": writer})
        self._open[connection.number] = connection
        try:
            await asyncio.gather(
                self._pump(connection, "up", reader), self._pump(connection, "down", far_reader), return_exceptions=True
            )
        finally:
            del self._open[connection.number]
            far_writer.transport.abort()

    async def _pump(self, connection: Connection, direction: Direction, reader: asyncio.StreamReader) -> None:
        """Read as fast as it comes (so the sender never learns of a hold by a full buffer), write as the weather is."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        writing = asyncio.create_task(self._write(connection, direction, queue))
        try:
            while True:
                try:
                    data = await reader.read(1 << 16)
                except OSError:
                    data = b""
                queue.put_nowait((self._loop.time() + self._weather.delay_s, data))
                if not data:
                    break
            await writing
        finally:
            writing.cancel()

    async def _write(
        self, connection: Connection, direction: Direction, queue: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        writer = connection.writers[direction]
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            while direction in self._weather.hold:
                await self._changed.wait()
            if direction in self._weather.swallow:
                connection.silent.add(direction)
            while direction in self._weather.swallow and not data:
                await self._changed.wait()  # an end is not lost: the peer hears of it when the network is back
            if not data:
                connection.end(reset=False)
                return
            self._note(connection, direction, data)
            if direction not in connection.silent:
                connection.bytes[direction] += len(data)
                with contextlib.suppress(OSError):
                    writer.write(data)
                    await writer.drain()

    def _note(self, connection: Connection, direction: Direction, data: bytes) -> None:
        if direction == "down":
            connection.request = b""
            if connection.cut_at_reply:  # now, and not before: the store has carried it out
                connection.end(reset=True)
            return
        connection.seen = (connection.seen + data)[-_SEEN:]
        connection.request = (connection.request + data)[-_SEEN:]
        for trap in self._traps:
            if trap.match(connection.request):
                self._traps.remove(trap)
                self._spring(trap, connection)
                return

    def _spring(self, trap: Trap, connection: Connection) -> None:
        connection.silent.add(trap.loses)
        trap.sprung.set()
        if trap.how == "cut" and trap.loses == "up":
            connection.end(reset=True)
        connection.cut_at_reply = trap.how == "cut"
