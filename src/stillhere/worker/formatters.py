"""How a line of the log looks: for people, or as one JSON object."""

from __future__ import annotations

import json
import logging


def formatter(form: str, who: str) -> logging.Formatter:
    """The formatter for `--log` (`plain` or `json`); `who` stands in front of a plain line."""
    return _Json() if form == "json" else logging.Formatter(f"%(asctime)s %(levelname)s [{who}] %(message)s")


class _Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Time, level, logger, process and text; a traceback as its own field."""
        fields = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)
