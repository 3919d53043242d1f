"""The process with user code: it claims, runs and settles."""
