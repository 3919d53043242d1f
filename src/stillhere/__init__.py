"""Jobs that are never lost and never run twice by accident."""
