"""Connections with bounds of our own: redis-py opens them (URL, TLS, login), and from then on we read and write.

redis-py's own ways are wrong here: it repeats commands behind the caller's back (an enqueue without an id would then be
two jobs), waits 5 s where a renewal has less, and its timeouts count from the last byte, not from the call. Here each
call has one deadline for everything: waiting for a connection, connecting, sending, each byte of the reply.

A connection serves one call at a time. Whatever goes wrong in a call (no answer in time, a cancelled task, a broken
reply) the connection is dropped, since an unread answer would be taken for the next call's. One that was found dead
before anything was written is replaced; nothing is ever sent twice.

A URL is refused when it is opened, with the part that is wrong; a server when it is first reached: a cluster, a
sentinel, or one older than 6.2. Resolving a host name is left to the system, which has a time limit of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import select
import time
from typing import Any, NoReturn
from urllib.parse import urlsplit

import hiredis
import redis
import redis.asyncio
from redis.asyncio.connection import parse_url as parse_async_url
from redis.backoff import NoBackoff
from redis.connection import parse_url

from stillhere.domain.errors import ConfigurationError, StillhereError, StoreFull, StoreUnavailable

_log = logging.getLogger("stillhere")

_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "unix": "unix"}
_OPTIONS = ("db", "username", "password", "client_name", "ssl_")
_MASK = re.compile(r"(?<=://)([^/:?#@]*):.*@|(?<=[?&]password=)[^&]*")  # to the last @: passwords may hold one
_OLDEST = (6, 2)
_MISSING = object()
_CHUNK = 65536


def pack(*words: bytes | str | int) -> bytes:
    """One command as it goes over the wire."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type]  # its stub wants a tuple of one
    return packed


_HELLO = pack("HELLO", 2)
_MEMORY = pack("INFO", "memory")


def masked(url: str) -> str:
    """The URL without its password."""
    return _MASK.sub(lambda found: f"{found[1]}:***@" if found[1] is not None else "***", url)


class Endpoint:
    """Where a store is, and how its connections are opened."""

    def __init__(self, url: str) -> None:
        """Read the URL; raises `ConfigurationError`."""
        self.shown = masked(url)
        self._url = self._read(url)
        self._greeted = False

    def _read(self, url: str) -> str:
        """The URL as redis-py writes it, once it is known to be good."""
        scheme, separator, rest = url.partition("://")
        if scheme not in _SCHEMES or not separator:
            known = ", ".join(f"{name}://" for name in _SCHEMES)
            raise ConfigurationError(f"{self.shown}: not the URL of a store. Write one of {known}.")
        url = f"{_SCHEMES[scheme]}://{rest}"
        try:
            _check_options(_options(url), urlsplit(url).path)
            _connection(_options(url), redis.Connection, redis.retry.Retry, None)
        except (ValueError, TypeError) as error:
            why = (
                "the port is not a number from 0 to 65535" if str(error).startswith("Port") else str(error).rstrip(".")
            )
            raise ConfigurationError(f"{self.shown}: {why}.") from None
        return url

    moves = False
    """Whether `locate` has anything to do."""

    def locate(self) -> None:
        """Find the server before a connection is opened; blocks. Nothing to do where the URL says it all."""

    def release(self) -> None:
        """The store is closed."""

    def sync_connection(self, timeout: float) -> Any:
        """A connection of redis-py for blocking use, not connected yet."""
        return _connection(_options(self._url), redis.Connection, redis.retry.Retry, timeout)

    def async_connection(self) -> Any:
        """The same for asyncio, where the caller's own timeout bounds everything."""
        return _connection(parse_async_url(self._url), redis.asyncio.Connection, redis.asyncio.retry.Retry, None)

    @property
    def greeting(self) -> list[bytes]:
        """What to ask a server that was just reached."""
        return [_HELLO] if self._greeted else [_HELLO, _MEMORY]

    def check_greeting(self, replies: list[Any]) -> None:
        """Refuse what cannot serve as a store, and warn where it may forget live jobs."""
        hello = replies[0]
        if isinstance(hello, hiredis.ReplyError):
            text = str(hello)
            if "unknown command" in text.lower():
                raise ConfigurationError(f"{self.shown} is older than Redis 6.2, which stillhere needs.")
            if not text.startswith("NOPERM"):  # a user who may not ask may do the rest all the same
                raise self.refused("the connection", hello)
            hello = []
        said = dict(zip(hello[::2], hello[1::2], strict=False))
        self._check_server(said)
        if len(replies) > 1 and isinstance(replies[1], bytes):
            self._check_memory(replies[1].decode())
        self._greeted = True

    def _check_server(self, said: dict[bytes, Any]) -> None:
        mode, server = said.get(b"mode", b"standalone").decode(), said.get(b"server", b"redis").decode()
        if mode != "standalone":
            raise ConfigurationError(f"{self.shown} is a {mode} node. stillhere needs one server, or its primary.")
        version = said.get(b"version", b"6.2").decode()
        if server == "redis" and tuple(int(n) for n in re.findall(r"\d+", version)[:2]) < _OLDEST:
            raise ConfigurationError(f"{self.shown} is Redis {version}. stillhere needs 6.2 or later.")

    def _check_memory(self, info: str) -> None:
        said = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
        policy = said.get("maxmemory_policy", "noeviction")
        if policy != "noeviction" and said.get("maxmemory", "0") != "0":
            _log.warning("%s may evict jobs: its maxmemory-policy is %s. Set it to noeviction.", self.shown, policy)

    # --------------------------------------------------------------------------------------------------- its errors

    def unreachable(self, error: BaseException) -> StillhereError:
        """What to tell when no connection came about."""
        inner = error.__cause__ or error  # the client for asyncio wraps what the server has said
        if isinstance(inner, (redis.AuthenticationError, redis.ResponseError)):
            return ConfigurationError(f"{self.shown} refused the connection ({str(error).rstrip('.')}).")
        return StoreUnavailable(f"Cannot reach {self.shown} ({_why(error)}).", sent=False)

    def broken(self, error: BaseException, timeout: float, *, sent: bool) -> StoreUnavailable:
        """What to tell when a call ended without an answer."""
        if isinstance(error, TimeoutError):
            return StoreUnavailable(f"No answer from {self.shown} within {timeout:g} s.", sent=sent)
        return StoreUnavailable(f"Lost the connection to {self.shown} ({_why(error)}).", sent=sent)

    def refused(self, stem: str, error: hiredis.ReplyError) -> StillhereError:
        """What to tell when the server answers with an error."""
        text = str(error)
        if stem == "enqueue" and "OOM command not allowed" in text:
            return StoreFull(f"No memory is left in {self.shown}: it takes no new job.")
        if text.startswith("NOAUTH"):
            return ConfigurationError(f"{self.shown} refused the connection (Authentication required).")
        if text.startswith("NOPERM"):
            return ConfigurationError(f"Not allowed by {self.shown}: {stem} ({text}).")
        return StoreUnavailable(f"Refused by {self.shown}: {stem} ({text}).")


def _options(url: str) -> Any:
    return parse_url(url)  # type: ignore[no-untyped-call]  # of redis-py


def _check_options(options: Any, path: str) -> None:
    strange = [name for name in options if not name.startswith((*_OPTIONS, "host", "port", "path", "connection_class"))]
    if strange:
        raise ValueError(f"the option {strange[0]!r} is not one of db, username, password, client_name or ssl_*")
    if options.get("path") is None and path.strip("/") and not path.strip("/").isdigit():
        raise ValueError("the database is not a number")


def _connection(options: Any, plain: Any, retry: Any, timeout: float | None) -> Any:
    make = options.pop("connection_class", plain)
    return make(
        **options,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        health_check_interval=0,
        protocol=2,
        decode_responses=False,
        retry=retry(NoBackoff(), 0),
    )


def _why(error: BaseException) -> str:
    """The innermost reason, in the system's words."""
    while error.__cause__ is not None or (isinstance(error, redis.RedisError) and error.__context__ is not None):
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, OSError) and error.strerror:
        return (os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror).lower()
    return str(error).rstrip(".") or type(error).__name__


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _ready(fileno: int) -> bool:
    """Whether there is something to read: on a connection at rest that is its end."""
    if fileno < 0:
        return True
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


class SyncWire:
    """A connection for blocking calls; `known` are the scripts that it has used."""

    def __init__(self, endpoint: Endpoint, deadline: float) -> None:
        """Connect; raises `StoreUnavailable` or `ConfigurationError`."""
        self._endpoint = endpoint
        self._reader = hiredis.Reader(notEnoughData=_MISSING)
        self.known: set[bytes] = set()
        endpoint.locate()
        self._connection = endpoint.sync_connection(max(deadline - time.monotonic(), 0.001))
        try:
            self._connection.connect()
            greeting = endpoint.greeting
            endpoint.check_greeting(self.exchange(b"".join(greeting), len(greeting), deadline))
        except (OSError, redis.RedisError, EOFError, hiredis.HiredisError) as error:
            self.close()
            raise endpoint.unreachable(error) from None
        except BaseException:
            self.close()
            raise

    @property
    def stale(self) -> bool:
        """Whether it died at rest."""
        sock = self._connection._sock  # noqa: SLF001 - redis-py has no public name for it
        return sock is None or _ready(sock.fileno())

    def exchange(self, packed: bytes, count: int, deadline: float) -> list[Any]:
        """Send, and read so many replies. Any exception leaves the connection useless."""
        sock, reader = self._connection._sock, self._reader  # noqa: SLF001 - as above
        sock.settimeout(_left(deadline))
        sock.sendall(packed)
        replies: list[Any] = []
        while len(replies) < count:
            reply = reader.gets()
            if reply is _MISSING:
                sock.settimeout(_left(deadline))
                data = sock.recv(_CHUNK)
                if not data:
                    _closed()
                reader.feed(data)
            else:
                replies.append(reply)
        return replies

    def close(self) -> None:
        """Drop it."""
        self._connection.disconnect()


class AsyncWire:
    """A connection for asyncio; the caller bounds each call by `asyncio.timeout`."""

    def __init__(self, endpoint: Endpoint, connection: Any) -> None:
        self._endpoint = endpoint
        self._reader = hiredis.Reader(notEnoughData=_MISSING)
        self.known: set[bytes] = set()
        self._connection = connection

    @classmethod
    async def open(cls, endpoint: Endpoint) -> AsyncWire:
        """Connect; raises `StoreUnavailable` or `ConfigurationError`."""
        if endpoint.moves:
            await asyncio.to_thread(endpoint.locate)
        wire = cls(endpoint, endpoint.async_connection())
        try:
            await wire._connection.connect()
            greeting = endpoint.greeting
            endpoint.check_greeting(await wire.exchange(b"".join(greeting), len(greeting)))
        except (OSError, redis.RedisError, EOFError, hiredis.HiredisError) as error:
            wire.close()
            raise endpoint.unreachable(error) from None
        except BaseException:
            wire.close()
            raise
        return wire

    @property
    def stale(self) -> bool:
        """Whether it died at rest; asks the system, since the loop may not have looked yet."""
        stream, writer = self._connection._reader, self._connection._writer  # noqa: SLF001 - as in `SyncWire`
        if stream is None or stream.at_eof() or writer.is_closing():
            return True
        return _ready(writer.get_extra_info("socket").fileno())

    async def exchange(self, packed: bytes, count: int) -> list[Any]:
        """As `SyncWire.exchange`."""
        stream, writer = self._connection._reader, self._connection._writer  # noqa: SLF001 - as in `SyncWire`
        writer.write(packed)
        await writer.drain()
        reader = self._reader
        replies: list[Any] = []
        while len(replies) < count:
            reply = reader.gets()
            if reply is _MISSING:
                data = await stream.read(_CHUNK)
                if not data:
                    _closed()
                reader.feed(data)
            else:
                replies.append(reply)
        return replies

    def close(self) -> None:
        """Drop it at once."""
        writer = self._connection._writer  # noqa: SLF001 - as in `SyncWire`
        if writer is not None and not writer.transport.is_closing():
            writer.transport.abort()
        self._connection._reader = self._connection._writer = None  # noqa: SLF001 - as in `SyncWire`


def _closed() -> NoReturn:
    raise EOFError("closed by the server")
