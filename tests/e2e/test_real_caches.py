"""Kinds with their real libraries: what is baked is found again, and what baker says of a damaged or moved tree is what the library then does."""

from __future__ import annotations

import os
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from baker.caches import by_name
from baker.inside.probe import observe
from baker.inside.rows import judge
from baker.pack.tree import Survey
from baker.spec import Target
from tests.real.cycle import Cycle

PROGRAMS = {
    "numba": "numba_program.py",
    "torch_extensions": "torch_extension_program.py",
    "tvm_ffi": "tvm_ffi_program.py",
    "hf_modules": "hf_modules_program.py",
}
NINJA = ("torch_extensions", "tvm_ffi")


@pytest.fixture(scope="module", params=sorted(PROGRAMS))
def baked(request: pytest.FixtureRequest, runtime_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Cycle, Survey, dict[str, Any]]:
    """A kind that its library filled, as layers unpacked at the root; live is empty."""
    directory = tmp_path_factory.mktemp(request.param)
    cycle = Cycle(directory / "opt", request.param, str(runtime_python), PROGRAMS[request.param])
    cold = cycle.run()
    return cycle, cycle.bake(directory / "layers"), cold


def fresh(cycle: Cycle, found: Survey) -> None:
    shutil.rmtree(cycle.root / "live", ignore_errors=True)
    cycle.fill(found)


def changes(cycle: Cycle, before: Any) -> list[str]:
    """New and changed files, without those that the kind calls mutable."""
    mutable = [pattern.pattern for pattern in by_name(cycle.kind).mutable]
    after = cycle.tree()
    paths = sorted(path for path, entry in after.items() if before.get(path) != entry)
    return [path for path in paths if not any(fnmatchcase(path, pattern) for pattern in mutable)]


def test_what_was_baked_is_found_and_nothing_is_written(baked: tuple[Cycle, Survey, dict[str, Any]]) -> None:
    cycle, found, cold = baked
    assert found.files
    assert not [finding for finding in found.findings if finding.severity == "hard"]
    fresh(cycle, found)
    before = cycle.tree()
    warm = cycle.run()
    assert warm["answer"] == cold["answer"]
    assert changes(cycle, before) == []
    assert warm.get("misses", 0) == 0
    if cycle.kind == "numba":
        assert (cold["hits"], warm["hits"]) == (0, 1)


def test_rows_hold_on_the_builder_itself(baked: tuple[Cycle, Survey, dict[str, Any]]) -> None:
    cycle, _, _ = baked
    kind = by_name(cycle.kind)
    env = {"PATH": os.pathsep.join([str(Path(cycle.python).parent), os.environ["PATH"]])}
    names = [row.fact for row in kind.rows({}, Target("cpu"))]
    site = [str(path) for path in Path(cycle.python).parents[1].glob("lib/python3*/site-packages")]
    facts = observe(names, cycle.python, site, env)
    rows = kind.rows(facts, Target("cpu"))
    assert [finding for row in rows if (finding := judge(row, kind.name, facts))] == []


def test_flattened_times_build_again_and_are_named(baked: tuple[Cycle, Survey, dict[str, Any]], tmp_path: Path) -> None:  # case O-32
    cycle, found, _ = baked
    if cycle.kind not in NINJA:
        pytest.skip("not built by ninja")
    fresh(cycle, found)
    module = next(path.parent for path in cycle.live.glob("*/build.ninja"))
    ninja = str(Path(cycle.python).parent / "ninja")
    idle = subprocess.run([ninja, "-n", "-C", str(module)], capture_output=True, text=True, check=True)
    assert "no work to do" in idle.stdout
    for path in module.iterdir():
        os.utime(path, ns=(10**18, 10**18 + (5 if path.suffix == ".o" else 0)))
    names = [path.relative_to(cycle.live).as_posix() for path in module.iterdir()]
    assert "module-partial" in {finding.code for finding in by_name(cycle.kind).problems(cycle.live, names)}
    busy = subprocess.run([ninja, "-n", "-C", str(module)], capture_output=True, text=True, check=True)
    assert "no work to do" not in busy.stdout


def test_another_python_abi_or_version_is_a_hard_row(baked: tuple[Cycle, Survey, dict[str, Any]]) -> None:  # cases O-15, O-17
    cycle, _, _ = baked
    kind = by_name(cycle.kind)
    packages = [row.fact for row in kind.rows({}, Target("cpu")) if row.fact.startswith("pkg.") and row.severity == "hard"]
    assert packages
    builder = {name: "1.0" for name in packages}
    later = {name: "2.0" for name in packages}
    for row in kind.rows(builder, Target("cpu")):
        if row.fact in packages:
            finding = judge(row, kind.name, later)
            assert finding is not None
            assert (finding.found, finding.expected) == ("2.0", "1.0")
