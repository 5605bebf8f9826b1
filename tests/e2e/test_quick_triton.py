"""Real Triton, compiled cubins and all, on the quick stand-in for the driver: what hits, what misses, and what baker's kind says of the tree."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from baker.caches import by_name
from baker.inside.probe import observe
from baker.inside.rows import judge
from baker.spec import Target
from tests.vgpu.quick import bed

KERNELS = 4
TARGET = Target("sm_90", "NVIDIA H100 80GB HBM3")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bed.build(tmp_path_factory.mktemp("quick") / "lib")


@pytest.fixture(scope="module")
def python(runtime_python: Path) -> str:
    return str(runtime_python)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory, libraries: Path, python: str) -> Path:
    """A cache at `…/live/triton`, filled by a cold run."""
    cache = tmp_path_factory.mktemp("warm") / "live" / "triton"
    cold = bed.triton(python, libraries, cache)
    assert cold["hits"] == [False] * KERNELS
    return cache


def problems(cache: Path) -> list[str]:
    paths = sorted(path.relative_to(cache).as_posix() for path in cache.rglob("*") if path.is_file())
    return [finding.code for finding in by_name("triton").problems(cache, paths)]


def test_a_second_process_hits_and_the_tree_is_sound(warm: Path, libraries: Path, python: str) -> None:
    assert bed.triton(python, libraries, warm)["hits"] == [True] * KERNELS
    assert problems(warm) == []
    factors = by_name("triton").factors(warm)
    assert (factors["kernels"], factors["architectures"]) == (KERNELS, ["sm_90"])


def test_another_capability_has_other_keys(warm: Path, libraries: Path, python: str, tmp_path: Path) -> None:  # case O-13
    cache = tmp_path / "live" / "triton"
    shutil.copytree(warm, cache)
    here = bed.triton(python, libraries, warm)["keys"]
    there = bed.triton(python, libraries, cache, QUICK_CAPABILITY="80")
    assert there["hits"] == [False] * KERNELS
    assert not set(there["keys"]) & set(here)
    assert "triton-mixed" in problems(cache)


def test_a_moved_tree_misses_and_is_named(warm: Path, libraries: Path, python: str, tmp_path: Path) -> None:  # case O-01: the path decides
    moved = tmp_path / "elsewhere"
    shutil.copytree(warm, moved)
    kept = warm.with_name("kept")
    warm.rename(kept)
    try:
        assert bed.triton(python, libraries, moved)["hits"] == [False] * KERNELS
    finally:
        kept.rename(warm)
    assert "triton-path" in problems(moved)
    assert bed.triton(python, libraries, warm)["hits"] == [True] * KERNELS


@pytest.mark.parametrize("variable", ["MLIR_ENABLE_DUMP", "TRITON_DISABLE_LINE_INFO"])
def test_a_variable_of_the_key_misses_by_being_set(variable: str, warm: Path, libraries: Path, python: str, tmp_path: Path) -> None:  # case O-02
    value = {"MLIR_ENABLE_DUMP": "0"}.get(variable, "1")
    assert bed.triton(python, libraries, tmp_path / "live" / "triton", **{variable: value})["hits"] == [False] * KERNELS
    keys = bed.triton(python, libraries, warm)["keys"]
    assert not set(bed.triton(python, libraries, tmp_path / "live" / "triton", **{variable: value})["keys"]) & set(keys)
    assert any(row.fact == f"env.{variable}" for row in by_name("triton").rows({}, TARGET))


def test_another_driver_changes_no_key(warm: Path, libraries: Path, python: str) -> None:  # case O-20
    assert bed.triton(python, libraries, warm, QUICK_CUDA="13010", QUICK_NAME="NVIDIA H200")["hits"] == [True] * KERNELS


def test_the_lean_form_hits_with_and_without_its_switch(warm: Path, libraries: Path, python: str, tmp_path: Path) -> None:
    cache = tmp_path / "live" / "triton"
    lean = dict(by_name("triton").lean)
    assert bed.triton(python, libraries, cache, **lean)["hits"] == [False] * KERNELS
    assert {path.suffix for path in cache.rglob("*") if path.is_file()} <= {".cubin", ".json", ".source", ".so"}
    assert problems(cache) == []
    size = sum(path.stat().st_size for path in cache.rglob("*.*"))
    assert size < 0.5 * sum(path.stat().st_size for path in warm.rglob("*.*"))
    assert bed.triton(python, libraries, cache)["hits"] == [True] * KERNELS
    assert bed.triton(python, libraries, cache, **lean)["hits"] == [True] * KERNELS


def test_triton_does_not_check_content_so_baker_must(warm: Path, libraries: Path, python: str, tmp_path: Path) -> None:
    cubin = sorted(warm.glob("*/*.cubin"))[0]
    whole = cubin.read_bytes()
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    cubin.write_bytes(bytes(damaged))
    try:
        assert bed.triton(python, libraries, warm)["hits"] == [True] * KERNELS
    finally:
        cubin.write_bytes(whole)


def tools(directory: Path, *names: str) -> str:
    """A PATH with only these programs."""
    directory.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found, f"{name} is needed: the test takes it away again"
        (directory / name).symlink_to(found)
    return str(directory)


def test_hits_need_no_compiler(warm: Path, libraries: Path, python: str, tmp_path: Path) -> None:  # case O-16
    path = tools(tmp_path / "bin", "file")
    assert bed.triton(python, libraries, warm, PATH=path)["hits"] == [True] * KERNELS
    rows = by_name("triton").rows({"tool.file.found": True}, TARGET)
    facts = observe([row.fact for row in rows], env={"PATH": path})
    codes = {row.fact: finding for row in rows if row.fact.startswith("tool.") and (finding := judge(row, "triton", facts))}
    assert codes.keys() == {"tool.cc"}
    assert codes["tool.cc"].severity == "soft"
    assert "fail, not just be slow" in codes["tool.cc"].remedy


def test_a_kernel_outside_of_the_baked_set_fails_without_a_compiler(libraries: Path, python: str, tmp_path: Path) -> None:  # case O-16
    with pytest.raises(AssertionError, match="Failed to find C compiler"):
        bed.triton(python, libraries, tmp_path / "live" / "triton", PATH=tools(tmp_path / "bin", "file"))


def test_the_program_file_is_in_the_key_of_the_launcher(warm: Path, libraries: Path, python: str, tmp_path: Path) -> None:
    path = tools(tmp_path / "bin")
    with pytest.raises(AssertionError, match="Failed to find C compiler"):
        bed.triton(python, libraries, warm, PATH=path)
    rows = by_name("triton").rows({"tool.file.found": True}, TARGET)
    facts = observe([row.fact for row in rows], env={"PATH": path})
    assert {row.fact for row in rows if row.fact.startswith("tool.") and judge(row, "triton", facts)} == {"tool.cc", "tool.file.found"}


def test_a_constant_path_of_the_driver_hits_wherever_the_driver_is(libraries: Path, python: str, tmp_path: Path) -> None:
    cache, constant = tmp_path / "live" / "triton", tmp_path / "live" / ".libcuda"
    constant.mkdir(parents=True)
    (constant / "libcuda.so.1").symlink_to(libraries / "libcuda.so.1")
    (constant / "libcuda.so").symlink_to("libcuda.so.1")
    bed.triton(python, libraries, cache, TRITON_LIBCUDA_PATH=str(constant))
    elsewhere = bed.build(tmp_path / "usr" / "lib64")
    (constant / "libcuda.so.1").unlink()
    (constant / "libcuda.so.1").symlink_to(elsewhere / "libcuda.so.1")
    path = tools(tmp_path / "bin", "file")
    assert bed.triton(python, elsewhere, cache, TRITON_LIBCUDA_PATH=str(constant), PATH=path)["hits"] == [True] * KERNELS


def test_one_entry_left_out_costs_one_compile(warm: Path, libraries: Path, python: str, tmp_path: Path) -> None:
    cache = tmp_path / "live" / "triton"
    bed.triton(python, libraries, cache)
    keys = sorted({path.parent.name for path in cache.glob("*/*.cubin")})
    shutil.rmtree(cache / keys[0])  # what start does with a damaged entry
    again = bed.triton(python, libraries, cache)
    assert sorted(again["hits"]) == [False, *[True] * (KERNELS - 1)]
    assert problems(cache) == []


def test_a_process_id_in_the_directory_is_not_reusable(warm: Path, tmp_path: Path) -> None:  # case O-08
    shutil.copytree(warm, tmp_path / "triton" / "cache_72")
    assert "triton-foreign" in problems(tmp_path / "triton")
