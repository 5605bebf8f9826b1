"""Inductor on the CPU with real torch, baked by runtime `command`: what start says without a C++ compiler, and that it is true."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from baker.engines.oci import Oci
from baker.inside import fill
from baker.inside.live import Live
from baker.pack.unpack import unpack
from baker.steps.images import Opened, open_image
from tests.e2e.conftest import baker
from tests.real.cycle import PROGRAMS


@pytest.fixture(scope="module")
def image(runtime_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    directory = tmp_path_factory.mktemp("inductor")
    places = ["--root", str(directory / "root"), "--work", str(directory / "work"), "--output", f"oci:{directory / 'image'}"]
    program = str(PROGRAMS / "inductor_program.py")
    words = ["--arch", "cpu", "--runtime", "command", "--python", str(runtime_python), *places, "--no-prove", "--", "python", program]
    done = baker("build", "--json", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return open_image(Oci(), Oci().read(json.loads(done.stdout)["reference"]))


def run(image: Opened, tmp_path: Path, *, started: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
    """The program through `start`, or with live filled unchecked; PATH without a C++ compiler unless given."""
    root = Path(image.manifest.root)
    shutil.rmtree(root, ignore_errors=True)
    unpack(image.layer_paths, root)
    (cache_set,) = image.manifest.sets
    command = [*cache_set.serve["program"], *cache_set.serve["argv"]]
    if started:
        command = [cache_set.serve["python"], "-I", "-S", f"{root}/start", "--", *command]
    else:
        jobs = [fill.Job(kind, f"{root}/sets/{cache_set.name}/{kind.name}") for kind in cache_set.kinds]
        fill.fill(Live(f"{root}/live", False, -1), "sha256:" + "0" * 64, cache_set.name, jobs, [])
    (tmp_path / "bin").mkdir(exist_ok=True)
    complete = {
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        **image.env,
        "PATH": str(tmp_path / "bin"),
        "BAKER_STATUS": str(tmp_path / "s.json"),
        **env,
    }
    return subprocess.run(command, env=complete, capture_output=True, text=True, timeout=200, check=False)


def test_with_the_compiler_it_is_shown_and_hits(image: Opened, tmp_path: Path) -> None:
    done = run(image, tmp_path, PATH=os.environ["PATH"])
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "s.json").read_text())["kinds"]["inductor"]["state"] == "shown"
    added = [
        path
        for path in (Path(image.manifest.root) / "live").rglob("*")
        if path.is_file() and not path.is_symlink() and path.suffix in (".cpp", ".so")
    ]
    assert added == []


def test_without_a_compiler_strict_refuses_and_auto_says_that_the_program_will_die(image: Opened, tmp_path: Path) -> None:  # case O-16
    strict = run(image, tmp_path, BAKER_POLICY="strict")
    assert strict.returncode == 107, strict.stderr
    auto = run(image, tmp_path)
    status = json.loads((tmp_path / "s.json").read_text())
    assert status["kinds"]["inductor"]["state"] == "hidden"
    assert "without it the server dies" in auto.stderr
    assert auto.returncode != 0  # and so it does
    assert "CppCompiler" in auto.stderr or "compiler" in auto.stderr


def test_a_fully_cached_program_dies_without_a_compiler_too(image: Opened, tmp_path: Path) -> None:
    forced = run(image, tmp_path, started=False)
    assert forced.returncode != 0
    assert "InvalidCxxCompiler" in forced.stderr
