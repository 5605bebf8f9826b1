"""Other users: the server as UID 12345, and the whole driver without root."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from baker.inside.job import Stage, load_result
from tests.sim.drive import completion
from tests.sim.fixtures import open_bench

OTHER = 12345
SYSTEM_PYTHON = next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()), "")

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change users")
system_python = pytest.mark.skipif(not SYSTEM_PYTHON, reason="needs an interpreter that other users can reach")


@root_only
@system_python
def test_server_runs_as_the_other_user(open_directory: Path) -> None:
    bench = open_bench(open_directory, python=SYSTEM_PYTHON)
    job = bench.job(1, [Stage("one", [[completion(str(bench.model), 1, 8, 2)]])], uid=OTHER)
    result = bench.run(job)
    assert (result.status, result.uid, result.remarks) == ("ok", OTHER, [])
    written = [path for path in (bench.live / "inductor").rglob("*") if path.is_file()]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in written} == {(OTHER, 0)}
    assert all(process.observed for process in result.processes)
    assert len(result.events) >= 2


@root_only
@system_python
@pytest.mark.parametrize("closed", ["live/inductor", "tmpdir1", "../model/model.safetensors", "tools.zip"])
def test_every_needed_path_is_tried(open_directory: Path, closed: str) -> None:
    bench = open_bench(open_directory, python=SYSTEM_PYTHON)
    path = (bench.directory / closed).resolve()
    path.chmod(0o700)
    result = bench.run(bench.job(1, [], uid=OTHER))
    assert (result.status, result.uid) == ("ok", 0)
    assert f"cannot use {path} (mode 0700" in result.remarks[0]


@root_only
@system_python
def test_an_interpreter_that_does_not_start_there_is_found(open_directory: Path) -> None:
    bench = open_bench(open_directory, python=SYSTEM_PYTHON)
    broken = open_directory / "runtime" / "bin" / "python-broken"
    broken.write_text(f'#!/bin/sh\n[ "$(id -u)" = 0 ] && exec "{bench.python}" "$@"\necho no library for you >&2\nexit 127\n')
    broken.chmod(0o755)
    bench.python = str(broken)
    result = bench.run(bench.job(1, [], uid=OTHER, record=""))
    assert (result.status, result.uid) == ("ok", 0)
    assert "does not start there (exit 127: no library for you)" in result.remarks[0]


@root_only
@system_python
def test_ordinary_user(open_directory: Path) -> None:
    """The whole driver without root: own user namespace for the network, no change of user, both said or reached."""
    bench = open_bench(open_directory, python=SYSTEM_PYTHON)
    bench.directory.chmod(0o777)
    job = bench.job(1, network="none", uid=4242)
    command = [SYSTEM_PYTHON, *bench.command(job)[1:]]
    user: dict[str, Any] = {"user": OTHER, "group": OTHER, "extra_groups": [], "env": {"PATH": "/usr/bin:/bin"}}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **user)
    assert done.returncode == 0, done.stderr
    result = load_result(Path(job.out).read_text())
    assert (result.status, result.uid) == ("ok", OTHER)
    assert f"server runs as uid {OTHER}, not 4242: only root may change users" in result.remarks
    assert result.network == "none" or any("network not isolated: own namespace refused" in remark for remark in result.remarks)
    assert all(process.torch and process.observed for process in result.processes)
