"""Log lines of a command: on stderr, as text for people or as one JSON object a line.

``STILLHERE_LOG_LEVEL`` sets the level; without it a command shows warnings, and with -v everything.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

from stillhere.domain.errors import ConfigurationError

LEVELS = ("debug", "info", "warning", "error")


class _Json(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"at": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def level(*, verbose: bool, default: int = logging.WARNING) -> int:
    """The level that holds; raises `ConfigurationError` for a name that is none."""
    named = os.environ.get("STILLHERE_LOG_LEVEL", "").strip().lower()
    if named and named not in LEVELS:
        raise ConfigurationError(f"STILLHERE_LOG_LEVEL={named!r}: write {', '.join(LEVELS)}.")
    if verbose:
        return logging.DEBUG
    return logging.getLevelNamesMapping()[named.upper()] if named else default


def start(style: str, *, verbose: bool) -> None:
    """Show the log lines of stillhere; a second call replaces the first."""
    plain = logging.Formatter("%(levelname)s: %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if style == "json" else plain)
    logger = logging.getLogger("stillhere")
    logger.handlers[:] = [handler]
    logger.setLevel(level(verbose=verbose))
    logger.propagate = False
