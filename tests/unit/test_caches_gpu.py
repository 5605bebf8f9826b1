"""Kinds for GPUs over trees in their real formats: sound ones pass, each named damage is found, rows say what decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from baker.caches import by_name, gpu
from baker.caches.cubin import NotCubinError, capability
from baker.caches.gpu import cuda_version
from baker.caches.triton_data import KEY_VARIABLES, OTHER_VARIABLES
from baker.caches.vllm import missing_tactics
from baker.inside.finding import Finding
from baker.inside.rows import judge
from baker.pack.tree import survey
from baker.spec import Target
from tests.bad import gpu_trees

H100 = Target("sm_90", "NVIDIA H100 80GB HBM3")
FACTS: dict[str, Any] = {
    "cpu.arch": "x86_64",
    "python.abi": "cpython-311-x86_64-linux-gnu",
    "python.version": "3.11.7",
    "libc.version": "2.36",
    "tool.cc": "/usr/bin/gcc",
    "tool.file.found": True,
    "pkg.torch": "2.14.0",
    "pkg.triton": "3.8.0",
    "pkg.vllm": "0.33.0",
    "pkg.flashinfer-python": "0.7.2.post1",
    "pkg.nvidia-cuda-runtime": "13.0.96",
    "gpu.cc": "9.0",
    "gpu.name": "NVIDIA H100 80GB HBM3",
    "gpu.sm_count": 132,
    "driver.version": "580.95.05",
    "cuda.driver_api": "13.0",
    "env.CUDA_HOME": "/usr/local/cuda",
}


def findings(name: str, root: Path) -> list[Finding]:
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return list(by_name(name).problems(root, paths))


def judged(name: str, **changed: Any) -> dict[str, str]:
    """fact -> severity of every row that is not met on a machine that differs from the builder by `changed`."""
    rows = by_name(name).rows(FACTS, H100)
    here = {**{row.fact: None for row in rows if row.fact.startswith("env.")}, **FACTS, **changed, "unknown": {}}
    return {finding.message.split(" ")[0]: finding.severity for row in rows if (finding := judge(row, name, here))}


def test_sound_trees_pass_and_tell_their_factors(tmp_path: Path) -> None:
    gpu_trees.triton(tmp_path / "t")
    gpu_trees.flashinfer(tmp_path / "f")
    assert findings("triton", tmp_path / "t") == []
    assert findings("flashinfer", tmp_path / "f") == []
    assert by_name("triton").factors(tmp_path / "t") == {
        "kernels": 2,
        "architectures": ["sm_90"],
        "versions": ["3.8.0"],
        "toolkits": [12],
        "directories": [gpu_trees.LIVE],
    }
    assert by_name("flashinfer").factors(tmp_path / "f") == {"modules": ["0.7.2.post1/90a/sampling"]}


@pytest.mark.parametrize("name", gpu_trees.TRITON)
def test_damaged_triton_trees_are_named(name: str, tmp_path: Path) -> None:
    bad = gpu_trees.TRITON[name]
    bad.make(tmp_path, gpu_trees.triton(tmp_path))
    found = findings("triton", tmp_path)
    assert bad.code in {finding.code for finding in found}
    assert all(finding.severity == "hard" for finding in found)
    assert any(bad.names in finding.line() for finding in found if finding.code == bad.code)


@pytest.mark.parametrize("name", gpu_trees.FLASHINFER)
def test_damaged_flashinfer_trees_are_named(name: str, tmp_path: Path) -> None:
    bad = gpu_trees.FLASHINFER[name]
    bad.make(tmp_path, gpu_trees.flashinfer(tmp_path))
    found = [finding for finding in findings("flashinfer", tmp_path) if finding.code == bad.code]
    assert any(bad.names in finding.line() for finding in found)


@pytest.mark.parametrize(
    ("kind", "damages", "make"), [("triton", gpu_trees.TRITON, gpu_trees.triton), ("flashinfer", gpu_trees.FLASHINFER, gpu_trees.flashinfer)]
)
def test_leaving_the_named_entries_out_leaves_a_sound_tree(kind: str, damages: Any, make: Any, tmp_path: Path) -> None:
    for name, bad in damages.items():
        root = tmp_path / name
        bad.make(root, make(root))
        cache = by_name(kind)
        paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        named = {cache.unit(finding.message.partition(" ")[0]) for finding in cache.problems(root, paths)}
        rest = [path for path in paths if cache.unit(path) not in named]
        whole_tree = {"moved", "mixed"}  # no single entry is at fault there: the bake is refused
        left = [finding for finding in cache.problems(root, rest) if finding.code not in ("triton-path", "triton-mixed")]
        assert name in whole_tree or (left == [] and len(rest) < len(paths)), name


@pytest.mark.parametrize(("abi", "sm"), [(7, 80), (7, 90), (8, 90), (8, 100), (8, 121)])
def test_capability_stands_in_the_elf_header(abi: int, sm: int) -> None:
    assert capability(gpu_trees.cubin(sm, abi)) == sm


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"x" * 64, gpu_trees.cubin(90, machine=62)])
def test_other_bytes_are_no_cubin(data: bytes) -> None:
    with pytest.raises(NotCubinError):
        capability(data)


def test_flashinfer_keeps_its_times_in_the_survey(tmp_path: Path) -> None:
    home = gpu_trees.flashinfer(tmp_path)
    kind = by_name("flashinfer")
    found = {file.path: file for file in survey(tmp_path, kind, mtimes=kind.mtimes).files}
    assert found[f"{gpu_trees.MODULE}/sampling.so"].mtime_ns == (home / "sampling.so").stat().st_mtime_ns
    assert found[f"{gpu_trees.MODULE}/a.cuda.o"].role == "inert"


@pytest.mark.parametrize("name", ["triton", "flashinfer", "vllm", "nv"])
def test_the_builder_itself_fits(name: str) -> None:
    assert judged(name) == {}


def test_another_driver_hides_only_the_drivers_own_cache() -> None:  # case O-20
    changed = {"driver.version": "580.126.09"}
    assert judged("nv", **changed) == {"driver.version": "hard"}
    assert {judged(name, **changed)["driver.version"] for name in ("triton", "flashinfer", "vllm")} == {"soft"}


@pytest.mark.parametrize("name", ["triton", "flashinfer", "vllm", "nv"])
def test_a_driver_older_than_the_cuda_of_torch_is_refused(name: str) -> None:  # case O-19
    old = {"driver.version": "550.54.15", "cuda.driver_api": "12.4"}
    assert judged(name, **old)["cuda.driver_api"] == "hard"
    row = next(row for row in by_name(name).rows(FACTS, H100) if row.fact == "cuda.driver_api")
    assert row.value == "13.0"
    assert "driver" in row.remedy
    assert "image" in row.remedy


def test_another_product_of_one_capability_hides_vllm_and_not_triton() -> None:
    h200 = {"gpu.name": "NVIDIA H200"}
    assert judged("triton", **h200) == {"gpu.name": "soft"}
    assert judged("flashinfer", **h200) == {"gpu.name": "soft"}
    assert judged("vllm", **h200) == {"gpu.name": "hard"}


@pytest.mark.parametrize("name", ["triton", "flashinfer", "vllm", "nv"])
def test_another_capability_hides_everything(name: str) -> None:  # case O-13
    assert judged(name, **{"gpu.cc": "12.0", "gpu.name": "NVIDIA RTX PRO 6000 Blackwell Server Edition"})["gpu.cc"] == "hard"


@pytest.mark.parametrize("variable", [*KEY_VARIABLES, *OTHER_VARIABLES])
def test_a_variable_of_tritons_key_that_is_merely_set_hides_triton(variable: str) -> None:
    assert judged("triton", **{f"env.{variable}": "0"}) == {f"env.{variable}": "hard"}


def test_a_variable_that_was_set_at_the_bake_must_be_set() -> None:  # case O-22: a chosen assembler is recorded and compared
    rows = by_name("triton").rows({**FACTS, "env.TRITON_PTXAS_PATH": "/opt/ptxas"}, H100)
    row = next(row for row in rows if row.fact == "env.TRITON_PTXAS_PATH")
    assert judge(row, "triton", {"env.TRITON_PTXAS_PATH": "/opt/ptxas", "unknown": {}}) is None
    assert judge(row, "triton", {"env.TRITON_PTXAS_PATH": None, "unknown": {}}) is not None


def test_cuda_home_is_in_flashinfers_build_commands() -> None:
    assert judged("flashinfer", **{"env.CUDA_HOME": "/opt/cuda"}) == {"env.CUDA_HOME": "hard"}


@pytest.mark.parametrize(
    ("facts", "version"),
    [
        ({"pkg.nvidia-cuda-runtime": "13.0.96"}, "13.0"),
        ({"pkg.nvidia-cuda-runtime-cu12": "12.8.90"}, "12.8"),
        ({"pkg.torch": "2.14.0+cu130"}, "13.0"),
        ({"pkg.torch": "2.13.0+cpu"}, ""),
        ({}, ""),
    ],
)
def test_cuda_version_of_torch(facts: dict[str, Any], version: str) -> None:
    assert cuda_version(facts) == version


def test_fewer_gpus_than_ranks_is_told_before_the_server_dies() -> None:  # case O-07
    assert gpu.world_rows("vllm", 1) == []
    (row,) = gpu.world_rows("vllm", 2)
    assert judge(row, "vllm", {"gpu.count": 2}) is None
    finding = judge(row, "vllm", {"gpu.count": 1})
    assert finding is not None
    assert (finding.severity, finding.found) == ("hard", "1")
    assert "2 GPUs" in finding.remedy


def test_autotuned_tactics_are_of_all_ranks_or_none() -> None:
    home = "flashinfer_autotune_cache/0.7.2/90a/0a/autotune_configs_dp0_rank"
    assert by_name("vllm").keep(f"{home}0.json", 10).verdict == "keep"
    assert missing_tactics([f"{home}0.json", f"{home}1.json"]) == []
    assert missing_tactics([]) == []
    assert [finding.code for finding in missing_tactics([f"{home}1.json"])] == ["rank-missing"]
    assert [finding.code for finding in missing_tactics([f"{home}0.json"], world=2)] == ["rank-missing"]


def test_a_made_tree_of_the_drivers_cache_and_of_the_autotune_store_is_packed(tmp_path: Path) -> None:  # unproven: no driver has filled one here
    store = ".cache/flashinfer/autotune/v2/a31de644208abdbc"
    for kind, names in {"nv": ["index", "0/1/0123456789abcdef"], "flashinfer": [f"{store}/manifest.json", f"{store}/entries/0a.json"]}.items():
        for name in names:
            (tmp_path / kind / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / kind / name).write_bytes(b"{}")
        found = survey(tmp_path / kind, by_name(kind))
        assert sorted(file.path for file in found.files) == sorted(names)
        assert {file.role for file in found.files} == {"code"}
        assert found.findings == ()
