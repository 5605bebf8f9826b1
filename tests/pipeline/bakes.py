"""Places where the pipeline tests bake: the unmodified command line against the server simulator, in this process or as a child."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baker import cli
from tests.sim.model import make_model

REPOSITORY = Path(__file__).parents[2]
SERVE = ("--max-model-len", "4224")
# Two small stages: single before batch, as in every profile.
# The AOT artifact loads: the first strategy proves, in two rounds. Profile QUICK goes with it, else each start would compile a header.
LOADS = {"aot": "works"}
PROFILE = """\
name: tiny
description: two stages, seconds
serve: []
env: {}
stages:
  - {name: single, batch: 1, input: 16, output: 4, requests: 2}
  - {name: pair, batch: 2, input: 24, output: 4, requests: 1}
"""
QUICK = PROFILE.replace("env: {}", 'env: {TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS: "0"}')


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What --json printed."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The error that --json printed."""
        found: dict[str, Any] = self.document["error"]
        return found

    @property
    def text(self) -> str:
        """Both streams, for a message of a failed test and for searches."""
        return f"exit {self.code}\n{self.out}\n{self.err}"


class Site:
    """One directory with a model, a profile and the places of one build. `python` is the simulated runtime's interpreter."""

    def __init__(self, directory: Path, python: str, script: Mapping[str, Any] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        self.directory, self.python = directory, python
        self.root, self.work, self.image = directory / "root", directory / "work", directory / "image"
        self.model = make_model(directory / "model", dict(script or {}))
        self.profile = directory / "tiny.yaml"
        self.profile.write_text(QUICK if (script or {}).get("aot") else PROFILE)

    @property
    def faults(self) -> Path:
        """Faults of the runtime itself, in force from the next server start on."""
        (found,) = Path(self.python).parents[1].glob("lib/python*/site-packages/vllm/sim")
        return found / "faults.json"

    def arguments(self, *options: str, command: str = "build", serve: tuple[str, ...] = SERVE) -> list[str]:
        """A command line; an option that is given twice counts as given last."""
        places = ("--root", str(self.root), "--work", str(self.work), "--output", f"oci:{self.image}")
        what = ("--arch", "cpu", "--model", str(self.model), "--profile", str(self.profile), "--python", self.python)
        return [command, *what, *places, *options, "--", *serve]

    def build(self, *options: str, serve: tuple[str, ...] = SERVE) -> Done:
        """`baker build` in this process."""
        return run(*self.arguments(*options, serve=serve))

    def spawn(self, *options: str, env: Mapping[str, str] | None = None, serve: tuple[str, ...] = SERVE) -> subprocess.Popen[str]:
        """`baker build` as a child, as a user would start it."""
        return spawn(*self.arguments(*options, serve=serve), env=env)

    def child(self, *options: str, env: Mapping[str, str] | None = None, serve: tuple[str, ...] = SERVE) -> Done:
        """`baker build` as a child, to its end."""
        return finish(self.spawn(*options, env=env, serve=serve))

    def state(self) -> dict[str, Any]:
        """`state.json`, {} before there is one."""
        path = self.work / "state.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def rounds(self) -> list[str]:
        """Names of the warm-up starts that left a log."""
        return sorted(path.stem for path in self.work.glob("logs/*-round-*.log"))


def run(*words: str) -> Done:
    """One command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(list(words))
    return Done(code, out.getvalue(), err.getvalue())


def spawn(*words: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """One command line as a child."""
    return subprocess.Popen(
        [sys.executable, "-m", "baker", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **(env or {})},
    )


def finish(process: subprocess.Popen[str], timeout: float = 100) -> Done:
    """Wait for a child; it is ended by its own process id when it takes too long."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate(timeout=60)
        raise AssertionError(f"not done after {timeout} s\n{out}\n{err}") from None
    return Done(process.returncode, out, err)


def until(what: Callable[[], Any], process: subprocess.Popen[str] | None = None, seconds: float = 60) -> None:
    """Wait until `what()` is true. Raises AssertionError when it does not come, or when `process` ended first."""
    limit = time.monotonic() + seconds
    while not what():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"ended before: {finish(process).text}")
        assert time.monotonic() < limit, f"not within {seconds} s"
        time.sleep(0.02)


def copy_runtime(python: str, directory: Path) -> str:
    """Another installation of the same runtime, for faults of its own. Times stay, so byte code stays valid."""
    home = Path(python).parents[1]
    shutil.copytree(home, directory, symlinks=True)
    for script in (directory / "bin").iterdir():
        if not script.is_symlink():
            script.write_text(script.read_text().replace(str(home), str(directory)))
    return str(directory / "bin" / "python")


class Farm:
    """Scenarios that run at the same time, because a bake mostly waits. Each is asked for by name."""

    def __init__(self, scenarios: Mapping[str, Callable[[], Any]], workers: int = 4) -> None:
        self._pool = ThreadPoolExecutor(workers)
        self._futures: dict[str, Future[Any]] = {name: self._pool.submit(scenario) for name, scenario in scenarios.items()}

    def __getitem__(self, name: str) -> Any:
        """The scenario's result; what it raised is raised here."""
        return self._futures[name].result()

    def close(self) -> None:
        """Start nothing more and wait for what runs."""
        self._pool.shutdown(wait=True, cancel_futures=True)
