"""Run a command that dies with the process that started it: ``python -I -S bound.py PARENT COMMAND ...``.

A wrapper and not `preexec_fn`, which is unsafe beside threads. The kernel sends the signal when the *thread* that
started us ends, so callers use it from their main thread only. On other systems than Linux it just runs the command.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit("the process that started this has ended")
    os.execv(command[0], command)
