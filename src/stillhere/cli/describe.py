"""A job for people and for programs: the record's own field names, times as RFC 3339, texts opened.

What users made (arguments, result, checkpoint) is put into the JSON as it is stored. It is JSON already, but for one
case: a value that holds NaN or half a character is stored in Python's spelling, which no JSON reader takes; that one is
given as a text.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from stillhere.cli.output import ago, clip, now_ms, rfc3339, span
from stillhere.domain.job import PRIORITY_NAMES, JobRecord

_TIMES = ("created", "due", "started", "ended", "start", "end", "at")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_JSON = ("args", "result", "checkpoint", "progress", "error")


def as_json(record: JobRecord) -> dict[str, Any]:
    """All fields that the record has, ready for JSON."""
    fields: dict[str, Any] = msgspec.to_builtins(record)
    for name in _JSON:
        if name in fields:
            fields[name] = opened(fields[name])
    if "runs" in fields:
        fields["runs"] = [with_times(opened(run)) for run in fields["runs"]]
    for name in ("progress", "error"):
        if name in fields:
            fields[name] = with_times(fields[name])
    return with_times(fields)  # type: ignore[no-any-return]  # a mapping stays one


def with_times(fields: Any) -> Any:
    """A mapping whose times are texts; anything else as it is."""
    if not isinstance(fields, dict):
        return fields
    return {
        name: rfc3339(value) if name in _TIMES and isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in fields.items()
    }


def opened(text: str) -> Any:
    """The value of a JSON text, or the text itself where it is not quite JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return text


def mapping(text: str | None) -> dict[str, Any]:
    """A JSON object of ours; empty when there is none."""
    value = opened(text) if text else None
    return value if isinstance(value, dict) else {}


def progress(record: JobRecord) -> str:
    """``871 of 1742 (50 %)``, and the note."""
    fields = mapping(record.progress)
    if "done" not in fields:
        return ""
    done, total, note = fields["done"], fields.get("total"), fields.get("note") or ""
    text = f"{done:g}" if isinstance(done, (int, float)) else str(done)
    if isinstance(total, (int, float)) and total and isinstance(done, (int, float)):
        text += f" of {total:g} ({100 * done / total:.0f} %)"
    return f"{text} {note}".strip()


def priority(record: JobRecord) -> str:
    """The priority's name."""
    return PRIORITY_NAMES.get(record.priority, str(record.priority))


def where(record: JobRecord) -> str:
    """What it is doing or waiting for, in a few words."""
    match record.state:
        case "running":
            told = progress(record)
            since = f"for {ago(record.started)} on {record.worker or 'nobody'}"
            return f"{since}, {told}" if told else since
        case "scheduled":
            return f"{record.reason or ''} due {due(record)}".strip()
        case "ready":
            return record.reason or ""
        case "succeeded":
            return f"{ago(record.ended)} ago"
    return f"{ago(record.ended)} ago, {clip(why(record), 60)}".rstrip(", ")


def why(record: JobRecord) -> str:
    """Why it ended as it did."""
    error = mapping(record.error)
    message = ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
    exit_reason = error.get("exit")
    if exit_reason:
        return f"worker died: {exit_reason}"
    return message or record.reason or ""


def printable(text: str) -> str:
    """The text without characters that would act on a terminal; lines stay lines."""
    return _CONTROL.sub("?", text)


def due(record: JobRecord) -> str:
    """When it becomes ready."""
    if record.due is None:
        return "some time"
    left = record.due - now_ms()
    return f"in {span(left)}" if left > 0 else "now"
