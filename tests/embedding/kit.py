"""What tests of embedded workers share: a program with a worker in it, and what a process has to compare."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from pathlib import Path

from tests.faults.kit import LEASE_S, Stage
from tests.support.procs import RealProcess, children, eventually


class HostProcess(RealProcess):
    """`tests.embedding.host` as a process."""

    def __init__(self, stage: Stage, log: Path, options: dict[str, object]) -> None:
        told = {"lease": LEASE_S, **options}
        environ = {"STILLHERE_URL": stage.url, "STILLHERE_NAMESPACE": stage.namespace, **stage.ledger.environ}
        super().__init__([sys.executable, "-m", "tests.embedding.host", json.dumps(told)], log=log, environ=environ)

    @property
    def host(self) -> int:
        """The process id of the program itself."""
        return self._number("host")

    def keeper(self) -> int:
        """The process id of its keeper, once it has one."""
        return eventually(lambda: children(self.host), what=lambda: self.log)[0]

    def terminate(self) -> None:
        """Have it leave its block."""
        os.kill(self.host, signal.SIGTERM)

    def _number(self, word: str) -> int:
        found = re.search(rf"^{word} (\d+)$", self.log, re.MULTILINE)
        assert found is not None, self.log
        return int(found[1])


class Belongings:
    """What this process has, to be compared with what it had."""

    def __init__(self) -> None:
        self.threads = set(threading.enumerate())
        self.children = set(children(os.getpid()))
        self.files = {path.name for path in Path("/proc/self/fd").iterdir()}
        self.signals = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self.wakeup = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(self.wakeup)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Belongings) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"{self.threads} {self.children} {sorted(self.files)}"
