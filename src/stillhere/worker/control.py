"""The control socket between a supervisor and one child: rare messages, one JSON object a line.

What must be known at once, or after a death, stands on the board; here travel words: `start`, `hello`, `go`, `drain`.
Neither side may ever wait for the other: the socket does not block, what does not fit the kernel's buffer waits in a
bounded queue here and goes out with the next word, sent or received; a full queue drops the newest and counts it.
A line that is no object, or that is too long, is ignored and counted; unknown keys are ignored, so either side may be
newer. One `receive` reads a bounded amount, so a side that never stops talking does not keep the other from its work.

End of file means that the other *process end of the socket* is gone. To the child that is its supervisor's death; to
the supervisor it proves nothing, because a process forked by a handler may hold the child's end open, or a child that
lives may have closed it. Deaths are told by the kernel (pidfd), never by this socket.

A forked process inherits the socket; `register_at_fork` closes it there, so that neither end hears from a stranger and
a fork that lives on does not hide its parent's end of file.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import weakref
from collections import deque
from typing import Any

MAX_LINE = 256 * 1024
"""The longest line that is taken: the start message of an app with thousands of tasks."""
MAX_WAITING = 256
"""Messages that may wait for the other side to read."""
MAX_READS = 16
"""Times 64 KiB that one `receive` reads; the selector calls again for the rest."""
PROTOCOL = 1

Message = dict[str, Any]

_channels: weakref.WeakSet[Channel] = weakref.WeakSet()


class Channel:
    """One end of the control socket. `send` may be called from any thread; `receive` from one."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected stream socket."""
        sock.setblocking(False)
        self._sock = sock
        self._lock = threading.Lock()
        self._out: deque[bytes] = deque()
        self._in = b""
        self._skipping = False
        self._unread: list[Message] = []
        self.dropped = 0
        self.eof = False
        _channels.add(self)

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """Make both ends: ours, and the socket for the child to inherit."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs

    @classmethod
    def inherit(cls, fd: int) -> Channel:
        """Open the end that came through exec, and keep it from passing through the next one."""
        os.set_inheritable(fd, False)
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        """For selectors and event loops; -1 once closed."""
        return self._sock.fileno()

    @property
    def waiting(self) -> bool:
        """Whether something waits to be sent: ask to be called when the socket can be written."""
        return bool(self._out)

    def send(self, **message: Any) -> bool:
        """Queue one message and send what the kernel takes at once; False: it was dropped."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if len(self._out) >= MAX_WAITING or len(line) > MAX_LINE or self.fileno() < 0:
                self.dropped += 1
                return False
            self._out.append(line)
        self.flush()
        return True

    def flush(self) -> None:
        """Send as much as the kernel takes now."""
        with self._lock:
            while self._out:
                try:
                    sent = self._sock.send(self._out[0])
                except BlockingIOError:
                    return
                except OSError:
                    self._out.clear()
                    return
                if sent < len(self._out[0]):
                    self._out[0] = self._out[0][sent:]
                    return
                self._out.popleft()

    def unread(self, messages: list[Message]) -> None:
        """Put messages back in front: they are for whoever receives next."""
        self._unread = messages + self._unread

    def receive(self) -> list[Message]:
        """The messages that have come; `eof` is set when the other end is gone."""
        self.flush()
        before, self._unread = self._unread, []
        for _ in range(MAX_READS):
            try:
                data = self._sock.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.eof = True
                break
            self._in += data
            self._cut_overlong()
        *lines, self._in = self._in.split(b"\n")
        return before + [message for line in lines if (message := self._read(line)) is not None]

    def _cut_overlong(self) -> None:
        """Forget a line that has grown too long, up to its end."""
        tail = self._in.rfind(b"\n") + 1
        if self._skipping and tail:
            self._in, self._skipping = self._in[self._in.find(b"\n") + 1 :], False
        elif self._skipping or len(self._in) - tail > MAX_LINE:
            self.dropped += not self._skipping
            self._in, self._skipping = self._in[:tail], True

    def _read(self, line: bytes) -> Message | None:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict):
            return message
        self.dropped += 1
        return None

    def close(self) -> None:
        """Close this end."""
        self._sock.close()


def _close_in_fork() -> None:
    for channel in list(_channels):
        channel.close()


os.register_at_fork(after_in_child=_close_in_fork)
