"""O-45: whatever ends the driver or its parent, every process of the server ends, and no other."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from baker.inside.job import load_result
from tests.sim.drive import Bench, leftovers
from tests.sim.install import make_runtime
from tests.sim.model import make_model


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A server with two children in sessions of their own that ignore INT and TERM."""
    bench = Bench(tmp_path / "work", make_runtime(tmp_path / "runtime"), make_model(tmp_path / "model", {"stubborn": 2, "step_s": 0.5}))
    yield bench
    assert leftovers(tmp_path) == []


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not the driver's, with the same command line as the stubborn children."""
    code = "import signal,time\nfor s in (1,2,15): signal.signal(s, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={})
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    assert process.poll() is None, "a process that the driver did not start was ended"
    process.kill()
    process.wait()
    process.stdout.close()


def _wait(condition: Any, what: str, seconds: float = 15.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def _job(bench: Bench, **changes: Any) -> Any:
    return bench.job(1, grace_s=0.4, record="", request_s=60, **changes)


def _until_played(bench: Bench, job: Any) -> None:
    """The server is up and a slow request runs."""
    _wait(lambda: "Starting vLLM server" in Path(job.log).read_text() if Path(job.log).exists() else False, "server started")
    _wait(lambda: len(leftovers(bench.directory)) >= 7, "all processes there")


@pytest.mark.parametrize(("signum", "when"), [(signal.SIGTERM, "play"), (signal.SIGINT, "play"), (signal.SIGTERM, "load")])
def test_signal_to_the_driver(bench: Bench, stranger: Any, signum: int, when: str) -> None:
    job = _job(bench)
    with bench.start(job) as driver:
        if when == "play":
            _until_played(bench, job)
        else:
            _wait(lambda: Path(job.log).exists(), "log begun")
        driver.send_signal(signum)
        assert driver.wait(20) == 128 + signum
    result = load_result(Path(job.out).read_text())
    assert result.status == "signal"
    assert result.error == f"{signal.Signals(signum).name} arrived"
    if when == "play":
        assert sum("ignored INT and TERM: killed" in remark for remark in result.remarks) == 2
    assert leftovers(bench.directory) == []


def test_signal_before_the_server_was_started(bench: Bench) -> None:
    """The inventory before the spawn hashes a few hundred MB here; TERM falls into it."""
    (bench.live / "inductor").mkdir(parents=True)
    with (bench.live / "inductor" / "big").open("wb") as file:
        for _ in range(8):
            file.write(os.urandom(1 << 20) * 48)
    job = _job(bench)
    with bench.start(job) as driver:
        time.sleep(0.25)
        driver.terminate()
        assert driver.wait(20) == 143
    assert load_result(Path(job.out).read_text()).status == "signal"


_PARENT = "import subprocess,sys; p=subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); p.wait()"


def test_parent_is_killed(bench: Bench, stranger: Any) -> None:
    job = _job(bench)
    with subprocess.Popen([sys.executable, "-c", _PARENT, *bench.command(job)], stdout=subprocess.PIPE) as parent:
        _until_played(bench, job)
        parent.kill()
        parent.wait()
    _wait(lambda: not leftovers(bench.directory), "every process gone")
    assert load_result(Path(job.out).read_text()).error == "SIGTERM arrived"


def test_driver_itself_is_killed(bench: Bench, stranger: Any) -> None:
    """The guard above it ends the tree and leaves a result."""
    job = _job(bench)
    with bench.start(job) as guard:
        _until_played(bench, job)
        children = Path(f"/proc/{guard.pid}/task/{guard.pid}/children").read_text().split()
        assert len(children) == 1
        os.kill(int(children[0]), signal.SIGKILL)
        assert guard.wait(20) == 137
    result = load_result(Path(job.out).read_text())
    assert result.status == "signal"
    assert "the driver was killed by SIGKILL" in result.error
    assert leftovers(bench.directory) == []


def test_impatience_kills_at_once(bench: Bench) -> None:
    job = dataclasses.replace(_job(bench), grace_s=60.0)
    with bench.start(job) as driver:
        _until_played(bench, job)
        driver.terminate()
        time.sleep(1.2)
        began = time.monotonic()
        driver.terminate()
        assert driver.wait(20) == 143
        assert time.monotonic() - began < 5
