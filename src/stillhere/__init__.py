"""Jobs that are never lost and never run twice by accident."""

__version__ = "0.1.0"
