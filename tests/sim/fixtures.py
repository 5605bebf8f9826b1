"""Fixtures over the simulator that several test folders share (loaded by tests/conftest.py)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from baker.pack.zips import tools_zip
from tests.sim.drive import Bench, leftovers
from tests.sim.install import make_runtime
from tests.sim.model import make_model


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return make_runtime(tmp_path_factory.mktemp("runtime"))


@pytest.fixture
def run(tmp_path: Path, python: str) -> Any:
    """Run code under the recorder; returns (its output, lines by pid)."""
    tools = tmp_path / "tools.zip"
    tools.write_bytes(tools_zip())
    directory = tmp_path / "record"
    directory.mkdir()

    def call(code: str, *flags: str, path: str = "", record: bool = True, **popen: Any) -> tuple[str, dict[int, list[dict[str, Any]]]]:
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(filter(None, [str(tools), path]))}
        if record:
            env["BAKER_RECORD"] = str(directory)
        done = subprocess.run([python, *flags, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, timeout=30, **popen)
        assert done.returncode == 0, done.stderr
        files = {int(p.stem): [json.loads(line) for line in p.read_text().splitlines()] for p in directory.glob("*.jsonl")}
        return done.stdout + done.stderr, files

    call.directory = directory  # type: ignore[attr-defined]
    return call


@pytest.fixture
def make(python: str, tmp_path: Path) -> Iterator[Any]:
    """A bench for a scripted model; whatever the test did, none of its processes may be left."""
    yield lambda **script: Bench(tmp_path / "work", python, make_model(tmp_path / "model", script))
    assert leftovers(tmp_path) == []


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user can reach (pytest's own is 0700) and write."""
    path = Path(tempfile.mkdtemp(prefix="baker-test-"))
    path.chmod(0o755)
    yield path
    assert leftovers(path) == []
    shutil.rmtree(path)


def open_bench(directory: Path, **runtime: Any) -> Bench:
    """A bench whose live, HOME and TMPDIR any user may write."""
    bench = Bench(directory / "work", make_runtime(directory / "runtime", **runtime), make_model(directory / "model"))
    bench.env(1)
    for path in [bench.live, *bench.live.iterdir(), bench.directory / "home1", bench.directory / "tmpdir1"]:
        path.chmod(0o777)
    return bench
