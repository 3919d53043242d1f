"""`python -m stillhere.worker.child`: started by a supervisor, never by hand. Handlers first, then the rest."""

from __future__ import annotations

from stillhere.worker.child.signals import Signals

signals = Signals()

from stillhere.worker.child.main import run  # noqa: E402 - a signal that comes during this import must be heard

run(signals)
