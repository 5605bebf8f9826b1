"""The quick stand-in under baker's probe: what a machine without a usable GPU is told (cases O-19, O-21, O-27), and that a stand-in is told apart."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from baker import machine, virtual
from baker.errors import MachineError, UsageError
from baker.spec import Target
from tests.vgpu.quick import bed

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bed.build(tmp_path_factory.mktemp("quick") / "lib")


def test_the_stand_in_is_told_apart(libraries: Path) -> None:
    facts = bed.probe(sys.executable, libraries, {})
    assert facts["gpu.virtual"] is True
    assert facts["cuda.library"] == str(libraries / "libcuda.so.1")
    assert (facts["gpu.name"], facts["gpu.cc"], facts["driver.version"]) == ("NVIDIA H100 80GB HBM3", "9.0", "580.95.05")


def test_an_older_driver_tells_what_it_serves(libraries: Path) -> None:  # case O-19
    facts = bed.probe(sys.executable, libraries, {"QUICK_CUDA": "12040", "QUICK_DRIVER": "550.54.15"})
    assert (facts["cuda.driver_api"], facts["driver.version"]) == ("12.4", "550.54.15")


@pytest.mark.parametrize("code", ["803", "804"])
def test_a_compat_library_is_not_no_gpu(code: str, libraries: Path) -> None:  # case O-21
    facts = bed.probe(sys.executable, libraries, {"QUICK_INIT": code})
    assert code in facts["gpu.error"]
    assert "compat" in facts["gpu.error"]
    assert "580.95.05" in facts["gpu.error"]


def test_a_compat_library_in_use_is_told(tmp_path: Path) -> None:  # case O-21: kernel module and libcuda are two versions
    facts = bed.probe(sys.executable, bed.build(tmp_path / "compat", "590.44.01"), {"QUICK_DRIVER": "580.95.05"})
    assert (facts["driver.version"], facts["cuda.library_version"], facts["cuda.forward_compat"]) == ("580.95.05", "590.44.01", True)
    same = bed.probe(sys.executable, bed.build(tmp_path / "host", "580.95.05"), {"QUICK_DRIVER": "580.95.05"})
    assert same["cuda.forward_compat"] is False


def test_who_answered_is_told(libraries: Path) -> None:
    facts = bed.probe(sys.executable, libraries, {})
    assert facts["sources"]["driver.version"] == "NVML"


def test_a_part_of_a_gpu_is_told(libraries: Path) -> None:
    assert bed.probe(sys.executable, libraries, {})["gpu.mig"] is None
    facts = bed.probe(sys.executable, libraries, {"QUICK_NAME": "NVIDIA H100 80GB HBM3 MIG 1g.10gb"})
    assert facts["gpu.mig"] == "1g.10gb"


def test_a_busy_gpu_is_told(libraries: Path) -> None:
    assert bed.probe(sys.executable, libraries, {})["gpu.processes"] == 0
    assert bed.probe(sys.executable, libraries, {"QUICK_PROCESSES": "3"})["gpu.processes"] == 3


@pytest.mark.parametrize("processes", [3, [0, 2]])
def test_a_build_refuses_a_busy_gpu(processes: object) -> None:
    class Host:
        def probe(self, request: object) -> dict[str, object]:
            return {"gpu.count": 1, "gpu.name": "NVIDIA H200", "gpu.cc": "9.0", "gpu.processes": processes}

    with pytest.raises(MachineError) as refused:
        machine.require_gpu(Target("sm_90"), Host())  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.exit_code) == ("gpu-busy", 3)


def test_a_driver_without_a_device(libraries: Path) -> None:  # case O-27
    facts = bed.probe(sys.executable, libraries, {"QUICK_INIT": "100"})
    assert facts["gpu.count"] == 0
    assert "no device" in facts["gpu.error"]


VIRTUAL = {"gpu.virtual": True, "gpu.name": "NVIDIA H100 80GB HBM3", "cuda.library": "/bed/libcuda.so.1"}


def test_a_stand_in_is_refused_unless_somebody_asked_for_it() -> None:
    with pytest.raises(MachineError, match="stand-in") as refused:
        virtual.mode(VIRTUAL, False, {})
    assert refused.value.code == "virtual-gpu"
    assert "--virtual" in refused.value.remedy
    assert virtual.mode(VIRTUAL, True, {}) == virtual.CROSS
    assert virtual.mode(VIRTUAL, False, {virtual.SWITCH: "1"}) == virtual.SUITE
    with pytest.raises(MachineError):
        virtual.mode(VIRTUAL, False, {virtual.SWITCH: "yes"})


def test_virtual_beside_a_real_gpu_is_a_conflict() -> None:
    with pytest.raises(UsageError) as refused:
        virtual.mode({"gpu.virtual": False, "gpu.name": "NVIDIA H200"}, True, {})
    assert refused.value.code == "conflict"
    assert virtual.mode({"gpu.virtual": False}, False, {virtual.SWITCH: "1"}) == ""


def test_choices_by_time_are_left_out_of_a_cross_bake_only() -> None:
    record = "vllm/torch_compile_cache/torch_aot_compile/0a/inductor_cache/ab/0123.best_config"
    assert virtual.left_out(virtual.CROSS, record)
    assert virtual.left_out(virtual.CROSS, "triton/ABC/k.autotune.json")
    assert not virtual.left_out(virtual.SUITE, record)
    assert not virtual.left_out(virtual.CROSS, "vllm/torch_compile_cache/torch_aot_compile/0a/rank_0_0/model")


def test_the_mark_says_what_a_real_gpu_must_confirm() -> None:
    assert virtual.mark("", 1) == {}
    one, two = virtual.mark(virtual.CROSS, 1), virtual.mark(virtual.CROSS, 2)
    assert one["untuned"] is True
    assert one["graph_may_differ"] is False
    assert two["graph_may_differ"] is True
    assert len(two["confirm"]) == len(one["confirm"]) + 1
    assert virtual.mark(virtual.SUITE, 1)["left_out"] == []
