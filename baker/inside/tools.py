"""`__main__` of tools.zip: `drive JOB.json` runs the warm-up driver, `probe` answers facts about this machine.

`drive` is two processes: a guard, and below it the driver. The guard passes signals on, and when the driver itself is killed (out of memory,
`kill -9`) it ends whatever the driver had started. Exit codes: baker/inside/job.py; 1 means that no result could be written.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import traceback
from typing import Any, List, Optional

from baker.inside import driver, once, proctree
from baker.inside.job import Job, JobResult, dump, load_job

USAGE = "usage: tools.zip drive JOB.json | tools.zip probe < REQUEST.json"


def _expect(condition: bool, where: str, found: Any, expected: str) -> None:
    if not condition:
        raise ValueError("job.%s: found %.200r, expected %s" % (where, found, expected))


def _check(job: Job) -> None:
    """What JSON cannot say. Raises ValueError that names the field."""
    _expect(isinstance(job.argv, list) and bool(job.argv) and all(isinstance(w, str) and "\0" not in w for w in job.argv), "argv", job.argv, "words")
    _expect(isinstance(job.env, dict) and all(isinstance(v, str) for v in job.env.values()), "env", job.env, "an object of strings")
    _expect(isinstance(job.port, int) and 0 < job.port < 65536, "port", job.port, "1 to 65535")
    _expect(job.network in ("host", "none"), "network", job.network, '"host" or "none"')
    _expect(job.uid is None or (isinstance(job.uid, int) and job.uid >= 0), "uid", job.uid, "a user id or null")
    for name in ("log", "out", "cwd"):
        value = getattr(job, name)
        _expect(isinstance(value, str) and value.startswith("/"), name, value, "an absolute path")
    for name in ("ready_s", "request_s", "deadline_s", "grace_s"):
        value = getattr(job, name)
        _expect(isinstance(value, (int, float)) and value > 0, name, value, "seconds above 0")
    for rule in job.watch:
        try:
            re.compile(rule.pattern)
        except re.error as error:
            raise ValueError("job.watch %s: pattern %r: %s" % (rule.name, rule.pattern, error)) from None


def read_job(path: str) -> Job:
    """The job of a file. Raises OSError, or ValueError that names the offending part."""
    with open(path, encoding="utf-8") as file:
        job = load_job(file.read())
    _check(job)
    return job


def write_result(path: str, result: JobResult) -> None:
    """Write the result as a whole or not at all. Raises OSError."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(dump(result))
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def drive(job: Job) -> int:
    """Run one job in this process and write its result. Returns 0, or 128 + signal, or 1 when the result could not be written."""
    signals = proctree.Signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, proctree.ENDING)
    proctree.become_subreaper()
    run = (once.Once if job.once else driver.Run)(job, signals)
    run.go()
    result = run.result()
    try:
        write_result(job.out, result)
    except OSError as error:
        print("baker driver: cannot write the result %s: %s" % (job.out, error), file=sys.stderr)
        return 1
    return 128 + signals.signum if result.status == "signal" else 0


def _driver_process(job: Job, guard: int) -> None:
    """The forked child; never returns. Its own session: a terminal's Ctrl-C reaches it once, through the guard."""
    code = 1
    try:
        os.setsid()
        if proctree.die_with_parent(signal.SIGTERM, guard):
            code = drive(job)
    except BaseException:  # noqa: BLE001 - a forked child must not return into its parent's code; the traceback is the report
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def guarded(job: Job) -> int:
    """Run the driver in a child and survive it. Returns its exit code, or 128 + the signal that killed it."""
    parent, me = os.getppid(), os.getpid()
    proctree.become_subreaper()
    # Blocked until both sides have their handlers, so that no signal falls between.
    signal.pthread_sigmask(signal.SIG_BLOCK, proctree.ENDING)
    child = os.fork()
    if child == 0:
        _driver_process(job, me)

    def forward(signum: int, _frame: Any) -> None:
        os.kill(child, signum)  # not reaped yet: the pid is still the child's

    for number in proctree.ENDING:
        signal.signal(number, forward)
    if not proctree.die_with_parent(signal.SIGTERM, parent):
        os.kill(child, signal.SIGTERM)  # baker ended before it could be watched
    signal.pthread_sigmask(signal.SIG_UNBLOCK, proctree.ENDING)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    signal.pthread_sigmask(signal.SIG_BLOCK, proctree.ENDING)  # from here on there is nobody to pass a signal to
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 1:
        return os.WEXITSTATUS(status)
    return _after_crash(job, status)


def _after_crash(job: Job, status: int) -> int:
    """The driver did not end as it should: end what it left, and say so in a result."""
    remarks = proctree.end(proctree.Tree(), 0, 0.1)
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)  # 1: its traceback or reason stands on stderr
    signum = os.WTERMSIG(status)
    why = "the driver was killed by %s; the processes that it had started were ended" % signal.Signals(signum).name
    write_result(job.out, JobResult(status="signal", error=why, remarks=remarks))
    return 128 + signum


def main(argv: Optional[List[str]] = None) -> int:
    """Run a subcommand; returns its exit code."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["probe"]:
        from baker.inside import probe

        return probe.main(words[1:]) or 0
    if len(words) != 2 or words[0] != "drive":
        print("%s (found: %s)" % (USAGE, " ".join(words) or "nothing"), file=sys.stderr)
        return 2
    try:
        job = read_job(words[1])
    except (OSError, ValueError, RecursionError, AttributeError, TypeError) as error:
        print("baker driver: cannot read job %s: %s" % (words[1], error), file=sys.stderr)
        return 2
    return guarded(job)


if __name__ == "__main__":
    sys.exit(main())
