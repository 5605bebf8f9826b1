"""Starting the warm-up driver as a child process and waiting for its result, whatever happens to either."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from baker.errors import MachineError
from baker.inside.job import Job, JobResult, dump, load_result
from baker.pack.space import free, room

# The driver ends the server within job.grace_s (INT, TERM, KILL each) and hashes the trees afterwards.
_LAST_S = 60.0
_RESULT = 1024 * 1024  # bytes; a result lists each file and module of a start, a few hundred kilobytes for vLLM
KEY = "BAKER_SERVER_KEY"


def run_driver(python: str, tools: Path, job: Job, job_file: Path, note: Callable[[int], None]) -> JobResult:
    """Write `job_file`, run `python -I -S tools.zip drive job_file`, return the result.

    `note` is told the driver's process id, and 0 when it has ended. On any exception here (Interrupted above all) the driver gets TERM and the time
    that it needs to end the server; then the exception goes on. Raises MachineError when no result was written.
    """
    text = dump(job)
    with room(job_file.parent, len(text), f"the job {job_file.name}"):
        job_file.unlink(missing_ok=True)  # a pipe there would be waited for, a link be followed
        job_file.write_text(text, encoding="utf-8")
    out = Path(job.out)
    out.unlink(missing_ok=True)
    errors = job_file.with_suffix(".driver.log")
    # The driver needs the secrets' values to mask them, and a server key to use it; none of them is in the job or the server's environment.
    environment = {"PATH": os.environ.get("PATH", os.defpath), **{name: os.environ[name] for name in (*job.mask, KEY) if name in os.environ}}
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [python, "-I", "-S", str(tools), "drive", str(job_file)],
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            env=environment,
            start_new_session=True,  # a Ctrl-C reaches baker alone, which then ends the driver in order
        )
        try:
            note(process.pid)
            code = process.wait()
        except BaseException:
            _end(process, job.grace_s)
            raise
        finally:
            note(0)
    if not out.exists():
        if (left := free(out)) < _RESULT:
            raise MachineError(
                "no space left for the result of the warm-up driver",
                code="no-space",
                found=f"{left} bytes free at {out.parent}",
                expected=f"at least {_RESULT} bytes",
                remedy="free space there or pass another --work, then run the same command again: whole rounds are kept",
                log=str(errors),
            )
        tail = errors.read_text(encoding="utf-8", errors="replace").strip()[-800:]
        raise MachineError(
            "the warm-up driver ended without a result", code="driver-failed", found=f"exit {code}: {tail}", expected=str(out), remedy=f"see {errors}"
        )
    try:
        return load_result(out.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MachineError(
            "the warm-up driver's result cannot be read", code="driver-failed", found=str(error), expected="a result", remedy=f"see {out}"
        ) from None


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(3 * grace_s + _LAST_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
