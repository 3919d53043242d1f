"""The signal that ends a run which holds its loop; what it does is in `child.steps`, who sends it in `supervisor`."""

from __future__ import annotations

import signal
import sys

CUT_SIGNAL: int = signal.SIGRTMIN + 4 if sys.platform == "linux" else signal.SIGUSR2
