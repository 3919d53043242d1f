"""The store in memory: the reference that all stores are held against, and the queue of a user's own tests.

Nothing outlives the process, so it is no place for real work. What it is for: it says each rule of the protocol in
plain Python, on top of `states.apply` and `LeaseClock`; the conformance suite runs on it as on every store; and the
stateful test plays the same verbs to it and to a real server and compares every reply.
"""

from stillhere.backends.memory.store import AsyncMemoryStore, SyncMemoryStore, open_memory_async, open_memory_sync

__all__ = ["AsyncMemoryStore", "SyncMemoryStore", "open_memory_async", "open_memory_sync"]
