"""`python -m stillhere.worker.keeper`: started by a program with a worker in it, never by hand.

Signals first: what stops a whole group of processes (a service manager, a terminal) reaches this one too, and it must
outlive the host, to release what the host held. Handlers, not SIG_IGN, since only those do not pass through exec.
"""

from __future__ import annotations

import signal

for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(_number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_SETMASK, [])

from stillhere.worker.keeper.program import run  # noqa: E402 - a signal during this import must not end the process

run()
