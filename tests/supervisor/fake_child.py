"""A child that does what a test says: it speaks the board and the control socket, and runs no jobs.

The supervisor starts it like the real one. Which story it plays is the `app` of its settings: ``name`` or
``name:argument``, a function below. What it hears and does goes as lines of JSON into the file `FAKE_CHILD_LOG`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from stillhere.worker.board import Board, Phase
from stillhere.worker.clock import boottime, boottime_ns
from stillhere.worker.control import PROTOCOL, Channel, Message
from stillhere.worker.settings import WorkerSettings

HOME = Path(os.environ.get("FAKE_CHILD_LOG", "/dev/null"))


class Child:
    """The two ends, and the usual beginning."""

    def __init__(self, board: Board, channel: Channel) -> None:
        self.board, self.channel = board, channel
        self.heard: list[Message] = []
        start = self.await_message("start")
        assert start is not None
        self.settings = WorkerSettings.from_json(start["settings"])
        self.worker: str = start["worker"]
        self.lanes: str = start["lanes"]
        self.ticking = True
        self.say("start", lanes=self.lanes, mark=os.environ["_STILLHERE_WORKER"], environ=sorted(os.environ))

    def say(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), "at": boottime_ns(), "worker": self.worker, **more})
        with HOME.open("a") as file:
            file.write(line + "\n")

    @staticmethod
    def events_so_far(event: str) -> int:
        """How often children have said this."""
        return HOME.read_text().count(f'"event": "{event}"')

    def await_message(self, kind: str, within: float = 60.0) -> Message | None:
        """The next message of this kind; None when the time is up or the supervisor is gone."""
        over = time.monotonic() + within
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        while time.monotonic() < over and not self.channel.eof:
            for message in self.channel.receive():
                self.heard.append(message)
                if message["m"] == kind:
                    return message
            poll.poll(20)
        return None

    def hello(self, **other: Any) -> None:
        fields = {
            "proto": PROTOCOL,
            "worker": self.worker,
            "url": "redis://user:secret@store:6379/0",
            "origin": "the test",
            "namespace": "ns",
            "lease_ms": self.settings.lease_ms,
            "queues": {"default": 1, "mail": 3},
            "tasks": 2,
            "task_names": ["one", "two"],
            "version": "9.9",
        }
        self.channel.send(m="hello", **(fields | other))

    def work(self) -> None:
        """Hello, go, RUN, ticks from a thread."""
        self.hello()
        if self.await_message("go") is None:
            self.leave(0)
        self.say("go")
        self.board.name_worker(self.worker)
        self.board.phase = Phase.RUN
        self.tick()
        threading.Thread(target=self._ticks, daemon=True).start()
        for queue in range(2):
            self.board.answer(queue, 7)

    def tick(self) -> None:
        self.board.write("loop_tick_ns", boottime_ns())
        self.board.write("keeper_tick_ns", boottime_ns())

    def _ticks(self) -> None:
        while True:
            if self.ticking:
                self.tick()
            time.sleep(0.05)

    def run(self, *jobs: str) -> None:
        for index, job in enumerate(jobs):
            self.board.fill(index, queue=index % 2, job=job, token=100 + index, task="one")
            self.board.start(index, boottime_ns())

    def until_told(self) -> Message | None:
        """Wait for `drain`, or for the supervisor's end."""
        told = self.await_message("drain", within=120)
        self.say("drain" if told else "eof", **({"timeline": told["timeline"]} if told else {}))
        return told

    def leave(self, code: int, left: int = 0) -> NoReturn:
        self.board.phase = Phase.EXIT
        self.channel.send(m="bye", code=code, left=left)
        os._exit(code)


# --------------------------------------------------------------------------------------------------------- stories


def steady(child: Child, *jobs: str) -> None:
    """Run these jobs until told to end; then end well."""
    child.work()
    child.run(*jobs)
    child.say("runs")
    child.until_told()
    child.leave(0)


def mixed(child: Child) -> None:
    """One job held, one ended, two started."""
    child.work()
    child.run("started-a", "started-b", "ended")
    child.board.end(2)
    child.board.fill(3, queue=1, job="held", token=9, task="two")
    child.say("runs")
    child.until_told()


def in_a_step(child: Child, code: str = "") -> None:
    """Two jobs of one queue, the loop in a step of the first; with a code it exits by it once `now` is there."""
    child.work()
    child.run("stepping")
    child.board.fill(2, queue=0, job="waiting", token=9, task="one")
    child.board.start(2, boottime_ns())
    child.board.write("current", 1)
    child.say("runs")
    if code:
        while not (HOME.parent / "now").exists():
            time.sleep(0.01)
        os._exit(int(code))
    child.until_told()


def holds(child: Child, megabytes: str) -> None:
    """The first one has so much memory while it runs a job; those that come after it are well."""
    if child.events_so_far("runs"):
        steady(child)
    child.work()
    child.run("eater")
    ballast = bytearray(os.urandom(1 << 20)) * int(megabytes)
    child.say("runs", size=len(ballast))
    told = child.await_message("retire")
    if told:
        child.say("told", why=told["why"])
    child.until_told()


def leaves_in_mid_run(child: Child) -> None:
    """As a handler that calls `os._exit(0)`."""
    child.work()
    child.run("quitter")
    os._exit(0)


def hangs_at_exit(child: Child) -> None:
    """Its main loop is over, a thread keeps the process."""
    child.work()
    child.run("job")
    child.board.phase = Phase.EXIT
    child.say("exits")
    time.sleep(60)


def loses_its_main_thread(child: Child) -> None:
    """The main thread is gone, another one runs on."""
    child.work()
    child.run("job")
    threading.Thread(target=time.sleep, args=(60,), daemon=False).start()
    child.say("exits")
    ctypes.CDLL(None).pthread_exit(None)


def has_offspring(child: Child) -> None:
    """Four kinds of offspring, each writing the time into its own file again and again."""
    child.work()
    child.run("job")
    write = "import sys,time\nwhile 1: open(sys.argv[1],'a').write(f'{time.clock_gettime_ns(7)}\\n'); time.sleep(.005)"
    twice = f"import os,sys\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  exec({write!r})\n os._exit(0)"
    here = HOME.parent
    subprocess.Popen([sys.executable, "-c", write, str(here / "plain.offspring")])
    subprocess.Popen([sys.executable, "-c", write, str(here / "session.offspring")], start_new_session=True)
    subprocess.Popen([sys.executable, "-c", twice, str(here / "daemon.offspring")])
    if os.fork() == 0:
        sys.argv[1:] = [str(here / "fork.offspring")]
        exec(write)
    while len([path for path in here.glob("*.offspring") if path.stat().st_size]) < 4:
        time.sleep(0.01)
    child.say("runs")
    child.until_told()


def leaves_orphans(child: Child) -> None:
    """Twenty processes whose parent is gone, and that end soon."""
    child.work()
    for _ in range(20):
        middle = os.fork()
        if middle == 0:
            if os.fork() == 0:
                time.sleep(0.2)
            os._exit(0)
        os.waitpid(middle, 0)
    child.say("orphaned")
    child.until_told()
    child.leave(0)


def dumps_core(child: Child, megabytes: str) -> None:
    """SIGSEGV with so much memory to dump; those that come after it are well."""
    if child.events_so_far("dies"):
        steady(child)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    child.work()
    child.run("job")
    ballast = bytearray(os.urandom(1 << 20)) * int(megabytes)
    child.say("dies", size=len(ballast))
    os.kill(os.getpid(), signal.SIGSEGV)


def goes_silent(child: Child) -> None:
    """Its loop stops ticking."""
    child.work()
    child.run("blocker")
    child.ticking = False
    child.say("silent")
    child.until_told()
    child.leave(0)


def refuses(child: Child, text: str) -> None:
    """A mistake of the user's, found before `hello`."""
    child.channel.send(m="crashed", type="configuration", text=text)
    os._exit(78)


def breaks_at_start(child: Child) -> None:
    """Die before `hello`, each time for the same reason."""
    child.channel.send(m="crashed", type="ZeroDivisionError", text="division by zero")
    os._exit(70)


def breaks_once_deployed(child: Child) -> None:
    """Those that are started after the file `deployed` is there cannot start."""
    if not HOME.with_name("deployed").exists():
        steady(child, "job")
    breaks_at_start(child)


def other_store_at_second_start(child: Child) -> None:
    """The app was changed under the worker."""
    first = HOME.with_name("first")
    if not first.exists():
        first.touch()
        steady(child, "job")
    child.hello(url="redis://elsewhere")
    child.await_message("go")


def old_protocol(child: Child) -> None:
    """A child of another version."""
    child.hello(proto=PROTOCOL + 1)
    child.await_message("go")


def dies_after_hello(child: Child) -> None:
    """Again and again, having run nothing."""
    child.work()
    os._exit(3)


def deaf(child: Child, *jobs: str) -> None:
    """Do not end when told to."""
    child.work()
    child.run(*jobs)
    child.say("runs")
    child.until_told()
    child.board.phase = Phase.DRAIN
    while True:
        child.until_told()


def drains_long(child: Child) -> None:
    """Drain for three seconds, in which its own voice says nothing."""
    child.work()
    child.run("job")
    child.say("runs")
    child.until_told()
    child.board.phase = Phase.DRAIN
    time.sleep(3)
    child.leave(0)


def told_directly(child: Child) -> None:
    """Somebody sends TERM to the child itself, and it never ends."""
    child.work()
    child.run("job")
    signal.signal(signal.SIGTERM, lambda *_: child.channel.send(m="draining", why="signal"))
    child.say("runs")
    while True:
        time.sleep(0.02)


def leaves_threads(child: Child) -> None:
    """End when told, with a thread in the middle of something."""
    child.work()
    child.run("job")
    child.say("runs")
    child.until_told()
    child.leave(0, left=1)


def has_nothing_left(child: Child) -> None:
    """A burst that is over."""
    child.work()
    time.sleep(0.1)
    child.leave(0)


def keeps_void_runs(child: Child) -> None:
    """Declared dead in the store, it takes a new id; its old run does not end."""
    child.work()
    child.run("old")
    child.say("runs")
    gone = child.await_message("gone")
    assert gone is not None
    child.worker += "b"
    child.board.name_worker(child.worker)
    child.say("reborn", before=gone["worker"])
    child.until_told()
    child.leave(0)


def solo_breaks(child: Child) -> None:
    """Pool children work; solo children die with nothing done."""
    if child.lanes != "solo":
        steady(child)
    dies_after_hello(child)


STORIES: dict[str, Callable[..., None]] = {
    name: thing for name, thing in list(globals().items()) if callable(thing) and name.islower()
}


def main() -> None:
    """Play the story."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--board", type=int)
    parser.add_argument("--control", type=int)
    parser.add_argument("--dump", type=int)
    given = parser.parse_args()
    child = Child(Board.attach(given.board), Channel.inherit(given.control))
    story, *arguments = child.settings.app.split(":", 1)
    STORIES[story](child, *arguments)


if __name__ == "__main__":
    born = boottime()
    main()
