"""The process without user code: it starts children, speaks for them, and buries them."""
