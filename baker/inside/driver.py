"""The warm-up driver: one Job in, one JobResult out. Starts the server, waits until it is ready, plays the stages, ends every descendant.

The main thread only supervises, every TICK_S: an end, a signal, a deadline. Requests run in threads that it may leave.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from baker.inside import events, isolate, logtail, ninja, play, proctree
from baker.inside.job import Job, JobResult, Process, Request, RequestResult, StageResult

TICK_S = 0.05  # how often the supervisor looks
SAMPLE_S = 0.5  # how often it walks the process tree
RETRY_S = 0.2  # between two attempts of the ready request
SETTLE_S = 1.0  # a server that just died gets this long to be found dead, after a request broke
FLUSH_S = 0.3  # before a new stage: a recorder polls every 0.25 s, what it finds still belongs to the stage before
DUMP_S = 2.0  # the recorders' time to answer a dump request
KEY_VARIABLES = ("BAKER_SERVER_KEY", "VLLM_API_KEY")

Inventories = Dict[str, Dict[str, List[Any]]]


class Over(Exception):  # noqa: N818 - an outcome, not a fault
    """The run ends here with this status and reason."""

    def __init__(self, status: str, error: str) -> None:
        super().__init__(error)
        self.status, self.error = status, error


def inventories(roots: Mapping[str, str], check: Callable[[], None]) -> Inventories:
    """Files of every root. Raises Over("failed") that names a file which cannot be read or never stops changing."""
    from baker.inside.inventory import InventoryError, walk

    found: Inventories = {}
    for name, path in sorted(roots.items()):
        check()
        try:
            found[name] = {entry: [item.type, item.size, item.value] for entry, item in walk(path).items()}
        except InventoryError as error:
            raise Over("failed", "inventory of %s: %s" % (name, error)) from None
    check()
    return found


class Run:
    """One start of a server: `go()` once, then `result()`."""

    def __init__(self, job: Job, signals: proctree.Signals) -> None:
        self.job, self.signals = job, signals
        self.status, self.error, self.failed_in = "ok", "", ""
        self.remarks: List[str] = []
        self.stages: List[StageResult] = []
        self.began = time.monotonic()
        self.marks: List[Tuple[float, str]] = []  # (monotonic start, stage)
        self.before: Inventories = {}
        self.after: Inventories = {}
        self.ready_s: Optional[float] = None
        self.network, self.uid = "host", os.geteuid()
        self.server: Optional[subprocess.Popen[bytes]] = None
        self.tail: Optional[logtail.LogTail] = None
        self.tree = proctree.Tree()
        self.census = proctree.Census(self.tree)
        self.record = events.Record()
        self._sampled = 0.0
        given = logtail.argument_secrets(job.argv)
        keys = [os.environ.get(name, "") for name in KEY_VARIABLES] + [job.env.get("VLLM_API_KEY", ""), *given]
        self.key = next((key for key in keys if key), "")
        values, remarks = logtail.secrets(job.mask, job.env, os.environ)
        self.remarks.extend(remarks)
        self.masker = logtail.Masker([*values, *keys])
        self.client = play.Client(job.port, self.key, self.masker.text)

    def go(self) -> None:
        """Run the job. Everything that was started has ended when this returns or raises."""
        try:
            self._prepare()
            self.before = inventories(self.job.roots, self.signals.check)
            self._spawn()
            self._until_ready()
            self._play()
        except Over as over:
            self.status, self.error = over.status, over.error
        except proctree.Stopped as stopped:
            self.status, self.error = "signal", str(stopped)
        finally:
            self._close()
        self._afterwards()

    def _prepare(self) -> None:
        job = self.job
        try:
            self.network, remarks = isolate.network(job.network)
            if not job.once and play.taken(job.port):
                raise Over("failed", "port %d is in use by another process: choose a free one" % job.port)
            chosen, more = isolate.user(job, [isolate.tools_zip()] if job.record else [])
            self.uid = os.geteuid() if chosen is None else chosen
            os.makedirs(os.path.dirname(os.path.abspath(job.log)), exist_ok=True)
            if job.record:
                os.makedirs(job.record, exist_ok=True)
                os.chown(job.record, self.uid, -1)
        except OSError as error:
            raise Over("failed", "cannot prepare the run: %s" % error) from None
        self.remarks.extend([*remarks, *more])

    def _spawn(self) -> None:
        reader, writer = os.pipe()
        self.began = time.monotonic()
        self._mark("start")
        try:
            self.server = isolate.spawn(self.job, None if self.uid == os.geteuid() else self.uid, writer)
            self.tail = logtail.LogTail(reader, self.job.log, self.masker, self.job.watch, self.began)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            os.close(reader)
            raise Over("died", "cannot start %s: %s" % (self.job.argv[0], error)) from None
        finally:
            os.close(writer)

    def _tick(self) -> None:
        """One look of the supervisor. Raises Over or Stopped."""
        self.signals.check()
        now = time.monotonic()
        if now - self._sampled >= SAMPLE_S:
            self._sampled = now
            self.census.sample()
        if self._exit_code() is not None:
            raise Over("died", self._why_died())
        if now - self.began > self.job.deadline_s:
            raise Over("deadline", "the run took longer than %g s" % self.job.deadline_s)

    def _wait(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self._tick()
            time.sleep(TICK_S)

    def _exit_code(self) -> Optional[int]:
        self.tree.reap()
        return self.tree.exits.get(self.server.pid) if self.server is not None else None

    def _why_died(self) -> str:
        assert self.tail is not None
        code = self._exit_code() or 0
        how = "was killed by %s" % signal.Signals(-code).name if code < 0 else "ended with exit code %d" % code
        self.tail.drain()
        return self.tail.first_error.text or "the server %s and logged no error; last line: %s" % (how, self.tail.last_line or "(none)")

    def _until_ready(self) -> None:
        ready = play.Ready(self.client)
        limit = self.began + self.job.ready_s
        while True:
            left = max(TICK_S, limit - time.monotonic())
            results: List[RequestResult] = []
            self._together([self.job.ready], min(self.job.request_s, left), results)
            verdict = ready.verdict(results[0])
            self._tick()
            if verdict == "ready":
                self.ready_s = round(time.monotonic() - self.began, 3)
                return
            if verdict == "unauthorized":
                advice = "the server refused the key that it was sent" if self.key else "the server wants a key: set VLLM_API_KEY"
                raise Over("unauthorized", "%s (%s)" % (advice, ready.last))
            if verdict == "failed":
                raise Over("failed", "the ready request was refused: %s" % ready.last)
            if time.monotonic() >= limit:
                raise Over("not-ready", self._with_log("no completion within %g s; last answer: %s" % (self.job.ready_s, ready.last)))
            self._wait(RETRY_S)

    def _together(self, requests: List[Request], timeout_s: float, results: List[RequestResult]) -> None:
        """Play one group and append its results, also when the run ends in the middle of it."""
        try:
            group = play.Group(self.client, requests, timeout_s)
        except OSError as error:
            raise Over("failed", str(error)) from None
        try:
            while not group.done(TICK_S):
                self._tick()
        finally:
            results.extend(group.finished())

    def _with_log(self, reason: str) -> str:
        assert self.tail is not None
        first = self.tail.first_error.text
        return "%s; first error in the log: %s" % (reason, first) if first else reason

    def _play(self) -> None:
        for stage in self.job.stages:
            if self.tail is not None and self.tail.matched() & set(self.job.stop_on):
                return
            self._wait(FLUSH_S if self.job.record else 0)
            self._mark(stage.name)
            results: List[RequestResult] = []
            try:
                for requests in filter(None, stage.groups):
                    self._together(requests, self.job.request_s, results)
                    self._judge(stage.name, results)
            finally:
                kept = results if stage.keep_tokens else [replace(result, tokens=[]) for result in results]
                self.stages.append(StageResult(stage.name, kept))

    def _judge(self, name: str, results: List[RequestResult]) -> None:
        """A length other than asked only does not count; a request without a whole 200 ends the run."""
        for number, result in enumerate(results, 1):
            if not result.counted and result.status != 200:
                self._wait(SETTLE_S)
                raise Over("failed", self._with_log("stage %s, request %d: %s" % (name, number, result.why)))

    def _close(self) -> None:
        """Look at the tree a last time and end it. Runs on every way out."""
        if self.server is None:
            return
        if self.status != "ok":
            self.failed_in = self.marks[-1][1]
        if self.tail is not None:
            self.tail.settled = True
        if self.job.record and self.status in ("ok", "failed"):
            self._request_dump()
        self.census.sample()
        self.remarks.extend(proctree.end(self.tree, self.server.pid, self.job.grace_s, lambda: self.signals.impatient))
        self.server.returncode = self.tree.exits.get(self.server.pid)
        if self.tail is not None:
            self.tail.close()
            self.remarks.extend(self.tail.remarks)

    def _request_dump(self) -> None:
        """Have the recorders of living processes write their counters and modules; at most DUMP_S seconds."""
        limit = time.monotonic() + DUMP_S
        missing = {0}
        try:
            wanted = events.request_dump(self.job.record)
            while missing and time.monotonic() < limit:
                time.sleep(TICK_S)
                record = events.read(self.job.record, self._when)
                living = {entry.pid for entry in self.tree.alive()}
                missing = {pid for pid in record.started & living if record.dumped.get(pid) != wanted}
        except OSError as error:
            self.remarks.append("the recorders could not be asked for their counters: %s" % error)
        else:
            if missing:
                self.remarks.append("no answer to the dump request from processes %s within %g s" % (sorted(missing), DUMP_S))

    def _afterwards(self) -> None:
        try:
            if self.job.record and os.path.isdir(self.job.record):
                self.record = events.read(self.job.record, self._when, self.masker.text)
                self.remarks.extend([*self.record.remarks(), *ninja.set_aside(self.record, self.job.roots)])
            self.after = inventories(self.job.roots, self.signals.check)
        except proctree.Stopped as stopped:
            self.status, self.error = "signal", str(stopped)
        except (OSError, Over) as error:
            self._also(str(error))

    def _also(self, error: str) -> None:
        """A fault after the end: the outcome when there was none before, else a remark."""
        if self.status == "ok":
            self.status, self.error = "failed", error
        else:
            self.remarks.append(error)

    def _mark(self, stage: str) -> None:
        self.marks.append((time.monotonic(), stage))
        if self.tail is not None:
            self.tail.stage = stage

    def _when(self, t: float) -> Tuple[float, str]:
        """Seconds since the spawn and the stage of a monotonic time."""
        return t - self.began, next((name for begin, name in reversed(self.marks) if begin <= t), "start")

    def result(self) -> JobResult:
        """The result, every secret masked."""
        return JobResult(
            status=self.status,
            error=self.masker.text(self.error),
            stage=self.failed_in,
            exit_code=self._exit_code(),
            ready_s=self.ready_s,
            wall_s=round(time.monotonic() - self.began, 3),
            stages=self.stages,
            lines=self.tail.lines if self.tail is not None else [],
            events=self.record.events,
            processes=[self._process(pid) for pid in self.census.members()],
            counters=dict(sorted(self.record.counters.items())),
            modules=sorted(self.record.modules),
            before=self.before,
            after=self.after,
            network=self.network,
            uid=self.uid,
            remarks=[self.masker.text(text) for text in self.remarks],
        )

    def _process(self, pid: int) -> Process:
        torch = pid in self.census.torch
        argv = self.masker.text(" ".join(self.census.argv.get(pid, []))[:2000])
        return Process(pid, argv, torch, self.record.observed(pid, torch))
