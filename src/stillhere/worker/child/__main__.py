"""`python -m stillhere.worker.child`: started by a supervisor, never by hand."""

from stillhere.worker.child.main import run

run()
