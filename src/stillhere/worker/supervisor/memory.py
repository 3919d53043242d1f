"""What the kernel tells about memory: whether somebody was killed for want of it.

A SIGKILL says nothing about its sender. The kernel counts those that it sends itself when memory runs out, for the
control group of this process (a container, a systemd unit) or for the machine. It counts first and kills then, and a
process with much memory takes a while to be gone; so the count is looked at all the time, and a death by SIGKILL soon
after a rise is taken for one that was counted, each for one. A rise that no such death follows was for something else
(a program that a handler had started): it is forgotten, or it would explain the next kill, days later. Where there is
no such counter (macOS) nobody is ever out of memory.
"""

from __future__ import annotations

from pathlib import Path

LATELY_S = 5.0
"""From the kernel's decision to the death of a process with very much memory, at most."""
MOST_OPEN = 1_000


class OomKills:
    """The kernel's count of processes that it has killed for want of memory."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._sources = _sources(root)
        self._seen = self._count()
        self._open: list[float] = []
        """When the kills were noticed that no death has been put down to."""

    def look(self, now: float) -> None:
        """Note what has come since the last look; `now` in seconds, of any clock, and always the same."""
        count = self._count()
        self._open = [at for at in self._open if now - at <= LATELY_S] + [now] * min(count - self._seen, MOST_OPEN)
        self._seen = count

    def explain(self, now: float) -> bool:
        """Whether a process that has just died of SIGKILL is one of those; if so, it explains no other death."""
        self.look(now)
        if not self._open:
            return False
        del self._open[0]
        return True

    def _count(self) -> int:
        for path in self._sources:
            for line in _lines(path):
                name, _, number = line.partition(" ")
                if name == "oom_kill" and number.isdigit():
                    return int(number)
        return 0


def _sources(root: Path) -> list[Path]:
    """The own control group's counter (version 2, version 1), then the machine's; the first that is there counts."""
    groups = {names: path.lstrip("/") for _, names, path in _own_groups(root)}
    second, first = groups.get(""), next((path for names, path in groups.items() if "memory" in names.split(",")), None)
    found = []
    if second is not None:
        found += [root / "sys/fs/cgroup" / second / "memory.events", root / "sys/fs/cgroup/memory.events"]
    if first is not None:
        base = root / "sys/fs/cgroup/memory"
        found += [base / first / "memory.oom_control", base / "memory.oom_control"]
    return [*found, root / "proc/vmstat"]


def _own_groups(root: Path) -> list[list[str]]:
    parts = (line.split(":", 2) for line in _lines(root / "proc/self/cgroup"))
    return [three for three in parts if len(three) == 3]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
