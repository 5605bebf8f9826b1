"""The process tree below this process: find every descendant through /proc, look at it, end it. Linux only.

The caller is made a child subreaper (prctl(2), Linux 3.4), so descendants that start their own session or lose their parent stay below it.
Nothing outside that tree is ever signalled: a pid counts only together with its start time (proc_pid_stat(5), field 22, clock ticks).
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>

ORPHAN_GRACE_S = 2.0  # children that outlive the server's first process get this long before TERM
TERM_GRACE_S = 5.0  # at most, between TERM and KILL
KILL_LIMIT_S = 10.0  # after this a process is reported as one that cannot be ended (uninterruptible sleep)
EXEC_GAP_S = 0.1  # no child needs longer from fork to exec, not even on a busy machine

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Have orphaned descendants reparented to this process. Raises OSError."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def die_with_parent(signum: int, parent: int) -> bool:
    """Be sent `signum` when the thread that started this process ends; False if `parent` is gone already. Async-signal-safe enough for preexec."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
    return os.getppid() == parent


class Stopped(BaseException):
    """A signal ended the run; `signum` says which. Not an Exception: nothing on the way may swallow it."""

    def __init__(self, signum: int) -> None:
        super().__init__("%s arrived" % signal.Signals(signum).name)
        self.signum = signum


class Signals:
    """INT, TERM and HUP as one flag; `check` raises it where the run can stop. A second one, a second later, means: do not wait any more."""

    def __init__(self) -> None:
        self.signum = 0
        self._first = 0.0
        self.impatient = False
        for number in ENDING:
            signal.signal(number, self._arrived)

    def _arrived(self, signum: int, _frame: Any) -> None:
        now = time.monotonic()
        if self.signum and now - self._first >= 1.0:
            self.impatient = True
        elif not self.signum:
            self.signum, self._first = signum, now

    def check(self) -> None:
        """Raise Stopped when a signal has come."""
        if self.signum:
            raise Stopped(self.signum)


@dataclass(frozen=True)
class Stat:
    """What /proc/PID/stat says: parent, state letter, start time in clock ticks since boot."""

    pid: int
    ppid: int
    state: str
    started: int

    @property
    def alive(self) -> bool:
        """False for zombies and dead entries."""
        return self.state not in "ZX"


def stat(pid: int) -> Optional[Stat]:
    """The process, or None when it is gone."""
    try:
        with open("/proc/%d/stat" % pid, "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    # The command in parentheses may hold blanks and parentheses: fields start after the last one.
    rest = text[text.rfind(")") + 2 :].split()
    return Stat(pid, int(rest[1]), rest[0], int(rest[19])) if len(rest) > 19 else None


def descendants(root: int) -> List[Stat]:
    """Every process below `root` (itself excluded), zombies included, parents before children."""
    children: Dict[int, List[Stat]] = {}
    for name in os.listdir("/proc"):
        entry = stat(int(name)) if name.isdigit() else None
        if entry is not None:
            children.setdefault(entry.ppid, []).append(entry)
    found: List[Stat] = []
    queue = [root]
    while queue:
        below = children.pop(queue.pop(0), [])
        found.extend(below)
        queue.extend(entry.pid for entry in below)
    return found


def command(pid: int) -> List[str]:
    """argv of a process; [] when it is gone or has none."""
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            data = file.read()
    except OSError:
        return []
    return [part.decode("utf-8", "replace") for part in data.rstrip(b"\0").split(b"\0")] if data else []


def maps_torch(pid: int) -> bool:
    """True when a library of torch (`libtorch*.so`) is mapped into the process."""
    try:
        with open("/proc/%d/maps" % pid, "rb") as file:
            return any(b"/libtorch" in line for line in file)
    except OSError:
        return False


class Tree:
    """The descendants of this process. The caller must be a subreaper and must let `reap` collect every exit status."""

    def __init__(self) -> None:
        self.exits: Dict[int, int] = {}

    def reap(self) -> None:
        """Collect exit statuses of all ended children: `exits[pid]` is the code, negative for a signal."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.exits[pid] = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def alive(self) -> List[Stat]:
        """Living descendants."""
        self.reap()
        return [entry for entry in descendants(os.getpid()) if entry.alive]

    def send(self, signum: int, targets: Iterable[Stat]) -> None:
        """Signal those of `targets` that are still the same process."""
        for target in targets:
            now = stat(target.pid)
            if now is not None and now.started == target.started:
                try:
                    os.kill(target.pid, signum)
                except ProcessLookupError:
                    continue  # it ended by itself in between


@dataclass
class _Ending:
    tree: Tree
    server: int
    impatient: Callable[[], bool]
    forced: Dict[Tuple[int, int], str] = field(default_factory=dict)

    def gone_within(self, seconds: float, orphans: float = 0.0) -> bool:
        """Wait until nothing lives. `orphans` > 0: from the end of the server on, children get only that long."""
        limit = time.monotonic() + seconds
        shortened = not orphans
        while True:
            living = self.tree.alive()
            if not living:
                return True
            now = time.monotonic()
            if not shortened and all(entry.pid != self.server for entry in living):
                limit, shortened = min(limit, now + orphans), True
            if now >= limit or self.impatient():
                return False
            time.sleep(0.02)

    def everywhere(self, signum: int, word: str) -> None:
        living = self.tree.alive()
        for entry in living:
            self.forced[(entry.pid, entry.started)] = "%s (%s)" % (word, " ".join(" ".join(command(entry.pid)).split())[:160])
        self.tree.send(signal.SIGCONT if signum == signal.SIGTERM else signum, living)
        self.tree.send(signum, living)


def end(tree: Tree, server: int, grace_s: float, impatient: Callable[[], bool] = lambda: False) -> List[str]:
    """End every descendant: INT to the server, TERM to what is left after `grace_s`, then KILL. Returns one remark a process that needed more.

    `impatient` answers True when the caller must not wait any longer: then KILL comes at once.
    """
    ending = _Ending(tree, server, impatient)
    tree.send(signal.SIGINT, [entry for entry in tree.alive() if entry.pid == server])
    if not ending.gone_within(grace_s, ORPHAN_GRACE_S):
        ending.everywhere(signal.SIGTERM, "needed TERM")
        if not ending.gone_within(min(grace_s, TERM_GRACE_S)):
            _kill(ending)
    return ["process %d %s" % (pid, what) for (pid, _), what in sorted(ending.forced.items())]


def _kill(ending: _Ending) -> None:
    """KILL until nothing lives; a process may fork between the walk and the signal, so walk again."""
    limit = time.monotonic() + KILL_LIMIT_S
    patient = _Ending(ending.tree, ending.server, lambda: False)
    while time.monotonic() < limit:
        ending.everywhere(signal.SIGKILL, "ignored INT and TERM: killed")
        if patient.gone_within(0.2):
            return
    for entry in ending.tree.alive():
        ending.forced[(entry.pid, entry.started)] = "could not be ended within %g s of KILL (state %s)" % (KILL_LIMIT_S, entry.state)


def still_torch(pid: int, argv: List[str]) -> bool:
    """A second look: a child between fork and exec has its parent's libraries and command line, and loses both in a moment."""
    return command(pid) == argv and maps_torch(pid)


class Census:
    """Who was seen in the tree: samples find torch processes that live only for a while (a registry child that imports a model class)."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.argv: Dict[int, List[str]] = {}
        self.torch: Set[int] = set()
        self.last: List[int] = []

    def sample(self) -> None:
        """Look at every living descendant once; maps are read only until torch is found in them."""
        self.last = []
        found: Dict[int, List[str]] = {}
        for entry in self.tree.alive():
            argv = command(entry.pid)
            if argv:
                self.argv[entry.pid] = argv
            self.last.append(entry.pid)
            if entry.pid not in self.torch and maps_torch(entry.pid):
                found[entry.pid] = argv
        if found:
            time.sleep(EXEC_GAP_S)
        self.torch.update(pid for pid, argv in found.items() if still_torch(pid, argv))

    def members(self) -> List[int]:
        """Pids of the last sample, and of every torch process ever seen, in order."""
        return sorted(set(self.last) | self.torch)
