"""Faults to put into the scripts on purpose, to see that the suite finds them: the proof that its tests can fail.

Each is a known way to build a queue wrong, said as text to replace. `conftest` puts one in when the environment names
it; the suite then must go red. `test_proof.py` holds each fault to the scripts' present text.
"""

from __future__ import annotations

from typing import NamedTuple

from stillhere.backends.redis.scripts import Mutate


class Fault(NamedTuple):
    """What the scripts say, and what they say when broken."""

    stem: str
    old: str
    new: str


FAULTS: dict[str, tuple[Fault, ...]] = {
    "no-claim-numbers": (
        Fault("beat", "grant.number <= answered", "true"),
        Fault("claim", "if n < me.cn then return {standing = 'old'} end", ""),
        Fault("claim", "if n == me.cn then", "if false then"),
    ),
    "no-gone-mark": (
        Fault("register", "if me.gone or call('EXISTS', key('gone:' .. worker)) == 1 then return 'gone' end", ""),
        Fault("claim", "if me.gone or not me.lease_ms", "if not me.lease_ms"),
        Fault("beat", "if me.gone or not me.lease_ms", "if not me.lease_ms"),
        Fault("renew", "if me.gone or not me.lease_ms", "if not me.lease_ms"),
    ),
    "settle-without-token": (Fault("settle", "or int(j.token) ~= outcome.token or j.worker ~= worker", ""),),
    "wall-clock-leases": (Fault("*", "lease = lease + math.min(step, gap)", "lease = lease + step"),),
    "token-from-time-only": (Fault("claim", "math.max(int(j.token) + 1, micros)", "micros"),),
    "hand-back-without-bound": (Fault("renew", "me.granted < hand_back", "hand_back > 0"),),
    "late-checkpoint-wins": (Fault("checkpoint", "and number <= tonumber(last)", "and false"),),
    "unanswered-for-ever": (Fault("sweep", "add(returned, unpack(take_back(me)))", ""),),
    "bystanders-charged": (Fault("end", "int(j._cn) > me.conf and 'bystander' or ", ""),),
    "suspects-in-the-crowd": (Fault("*", "if is_suspect(j) then return side", "if false then return side"),),
    "long-where-it-is-met": (Fault("claim", "not need and lane_for(j, side) == lane", "not need"),),
    "declared-for-ever": (Fault("register", "call('HDEL', key('lanes'), task)", ""),),
    "experience-before-declaration": (
        Fault(
            "*",
            "declared[j.task] or learnt[j.task] and 'long' or 'pool'",
            "learnt[j.task] and 'long' or declared[j.task] or 'pool'",
        ),
    ),
    "lost-lane-on-revival": (Fault("retry", ", lane = j.lane}", "}"),),
    "beside-twice-in-the-crowd": (Fault("*", "or int(j.beside) > 1", ""),),
    "late-answer-wins": (
        Fault("answer", "for _, asked in ipairs(questions()) do\n  if asked.id == id then", "do\n  if true then"),
    ),
    "cancel-forgotten": (Fault("*", "if j._cancel then\n    call_off", "if false then\n    call_off"),),
    "delays-on-the-wall": (Fault("*", "local steady = now + back_steps", "local steady = now"),),
    "ids-forgotten-at-once": (Fault("*", "keep = math.max(keep, KNOWN_MS)", "keep = math.max(keep, 1)"),),
    "revived-and-mortal": (Fault("retry", "call('PERSIST', key('j:' .. job))", ""),),
}


def mutation(name: str) -> Mutate:
    """The function that puts this fault in."""

    def mutate(stem: str, text: str) -> str:
        for fault in FAULTS[name]:
            if fault.stem in ("*", stem):
                text = text.replace(fault.old, fault.new)
        return text

    return mutate
