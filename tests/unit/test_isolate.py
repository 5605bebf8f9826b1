"""Network namespace and other user: what is reached, what is said when it is not, as root and as an ordinary user."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from baker.inside.job import JobResult
from tests.sim.drive import Bench
from tests.sim.fixtures import open_bench

OTHER = 12345
SYSTEM_PYTHON = next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()), "")

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change users")
system_python = pytest.mark.skipif(not SYSTEM_PYTHON, reason="needs an interpreter that other users can reach")


def _looks(bench: Bench, code: str, **changes: Any) -> tuple[JobResult, str]:
    """Run a program instead of a server; it ends at once ("died") and its output is the log."""
    job = bench.job(1, argv=[bench.python, "-c", code], record="", **changes)
    result = bench.run(job)
    assert result.status == "died"
    return result, Path(job.log).read_text()


def test_host_network_is_left_alone(tmp_path: Path) -> None:
    result, _ = _looks(open_bench(tmp_path), "pass")
    assert (result.network, result.uid, result.remarks) == ("host", os.geteuid(), [])


def test_own_network_holds_only_loopback(tmp_path: Path) -> None:
    """Where it is permitted; where not, the result says so. A listener outside is out of reach."""
    bench = open_bench(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        code = f"import socket; print(open('/proc/net/dev').read()); print('reached', socket.socket().connect_ex(('127.0.0.1', {port})))"
        result, log = _looks(bench, code, network="none")
    interfaces = re.findall(r"^\s*(\S+):", log, re.M)
    if result.network == "none":
        assert interfaces == ["lo"]
        assert "reached 111" in log  # ECONNREFUSED: lo is up and nobody listens
    else:
        assert any("network not isolated" in remark for remark in result.remarks)
        assert "reached 0" in log


def test_server_and_driver_meet_inside(tmp_path: Path) -> None:
    bench = open_bench(tmp_path)
    result = bench.run(bench.job(1, network="none", record=""))
    assert result.status == "ok"
    assert result.stages[0].requests[0].counted


@root_only
def test_what_the_other_user_cannot_reach_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    bench = open_bench(closed)
    result = bench.run(bench.job(1, [], uid=OTHER, record=""))
    assert (result.status, result.uid) == ("ok", 0)
    assert len(result.remarks) == 1
    match = re.match(rf"server runs as uid 0, not {OTHER}: uid {OTHER} cannot use (/\S+) \(mode (\d+), owner 0:0\)", result.remarks[0])
    assert match is not None
    assert Path(match[1]).stat().st_mode & 0o077 == 0
