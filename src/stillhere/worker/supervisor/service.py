"""What a service manager is told, where one listens (systemd, `Type=notify`): the datagrams of sd_notify(3).

READY=1 with the first child that works, STOPPING=1 with the first order to stop, WATCHDOG=1 from the beater's thread at
half the time that the manager allows (a sign of life of this program, whatever the store answers), and while it stops
EXTEND_TIMEOUT_USEC, so that a stop which takes its grace is not taken for one that hangs. The socket never blocks and
nothing here raises: a manager that is gone is told nothing. Children do not inherit the address.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import MutableMapping

from stillhere.worker.clock import boottime

MARGIN_S = 5.0


class ServiceManager:
    """The other end of NOTIFY_SOCKET; without one every call does nothing. From any thread."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ, pid: int | None = None) -> None:
        """Takes the variables out of the environment."""
        address = environ.pop("NOTIFY_SOCKET", "")
        watchdog, of = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._every_s = 0.0
        self._next = 0.0
        if watchdog.isdigit() and of in ("", str(pid or os.getpid())):
            self._every_s = int(watchdog) / 2e6

    def ready(self, status: str) -> None:
        """Jobs can run."""
        self._tell(f"READY=1\nSTATUS={status}")

    def stopping(self, within_s: float) -> None:
        """It will be gone within so many seconds."""
        self._tell(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={round((within_s + MARGIN_S) * 1e6)}")

    def alive(self) -> None:
        """A sign of life, if one is asked for and due."""
        now = boottime()
        if self._every_s and now >= self._next:
            self._next = now + self._every_s
            self._tell("WATCHDOG=1")

    def _tell(self, text: str) -> None:
        if self._address and hasattr(socket, "AF_UNIX"):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
                one.setblocking(False)
                one.sendto(text.encode(), self._address)
