"""Verbs that travel together: what to send for them, and what the replies mean.

The two stores differ in how they wait; everything else about a call is here. A batch is sent once. Only what the server
answered with NOSCRIPT, having run nothing, is sent a second time, its script in front of it.

Verbs of one batch run in their order. A server that knows the second one's script and not the first one's would break
that, so a batch of several verbs brings along every script that this connection has not used yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hiredis

from stillhere.backends.redis.connection import Endpoint, pack
from stillhere.backends.redis.verbs import Codec
from stillhere.ports.backend import Verb

_UNSENT = object()
_ROUNDS = 2


class Batch:
    """Some verbs on their way, and a list to keep: the names of queues that the namespace has not heard of yet."""

    def __init__(
        self,
        namespace: str,
        verbs: Sequence[Verb[Any]],
        codecs: Sequence[Codec[Any]],
        now: int | None,
        queues: list[str],
    ) -> None:
        self._codecs = codecs
        self._calls = [
            pack("EVALSHA", codec.script.sha, *codec.arguments(verb, namespace, now))
            for codec, verb in zip(codecs, verbs, strict=True)
        ]
        self._announcement = [pack("SADD", f"{namespace}:queues", *queues)] if queues else []
        self._replies: list[Any] = [_UNSENT] * len(verbs)
        self._sent: list[int] = []
        self._loads = 0
        self._rounds = 0
        self.announced = False

    def request(self, known: set[bytes]) -> tuple[bytes, int] | None:
        """What to send next, on a connection that has used these scripts, and how many replies come; None: done."""
        self._sent = [i for i, reply in enumerate(self._replies) if reply is _UNSENT or _is_noscript(reply)]
        if not self._sent or self._rounds == _ROUNDS:
            return None
        at_once = len(self._calls) == 1 and not self._rounds  # most likely the server knows it
        scripts = {self._codecs[i].script.sha: self._codecs[i].script.text for i in self._sent}
        loads = [] if at_once else [pack("SCRIPT", "LOAD", text) for sha, text in scripts.items() if sha not in known]
        extra = [] if self._rounds else self._announcement
        self._loads = len(loads)
        self._rounds += 1
        words = [*loads, *(self._calls[i] for i in self._sent), *extra]
        return b"".join(words), len(words)

    def take(self, replies: list[Any], known: set[bytes]) -> None:
        """Note the replies, and what they say of the scripts that the server knows."""
        refused = next((reply for reply in replies[: self._loads] if isinstance(reply, hiredis.ReplyError)), None)
        for i, reply in zip(self._sent, replies[self._loads :], strict=False):
            sha = self._codecs[i].script.sha
            if not _is_noscript(reply):
                known.add(sha)
            else:
                known.discard(sha)
            self._replies[i] = refused if refused is not None and _is_noscript(reply) else reply
        if len(replies) > self._loads + len(self._sent):
            self.announced = isinstance(replies[-1], int)

    def results(self, endpoint: Endpoint) -> list[Any]:
        """The verbs' replies; raises the first error."""
        for codec, reply in zip(self._codecs, self._replies, strict=True):
            if isinstance(reply, hiredis.ReplyError):
                raise endpoint.refused(codec.script.stem, reply)
        return [codec.reply(reply) for codec, reply in zip(self._codecs, self._replies, strict=True)]


def _is_noscript(reply: object) -> bool:
    return isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOSCRIPT")
