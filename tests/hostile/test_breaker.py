"""What an attack on the GPU path found, each as a test: pipes in trees, endless numbers, links that lead out, libraries that talk, lost updates."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from baker.caches import by_name, objects
from baker.caches.triton_entry import architecture
from baker.caches.vllm import missing_ranks, missing_tactics
from baker.engines.oci import Oci
from baker.errors import ArtifactError, UsageError
from baker.inside import libcuda
from baker.inside.manifest import ManifestError, canonical, parse
from baker.pack.tree import survey
from baker.runtimes.vllm import Vllm
from baker.spec import Model, Target
from tests.bad import gpu_trees, images, sound
from tests.vgpu.quick import bed


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("triton", "ABC/k.json"),
        ("triton", "ABC/__grp__k.json"),
        ("triton", "ABC/k.cubin"),
        ("vllm", "torch_compile_cache/0123456789/cache_key_factors.json"),
        ("bytecode", "a/b.pyc"),
        ("numba", "a/f.nbi"),
        ("deep_gemm", "cache/k.0/kernel.cubin"),
        ("cute_dsl", "a.mlir"),
        ("quack", "a" * 64 + "/x.o"),
    ],
)
def test_a_pipe_is_left_out_and_never_opened(kind: str, path: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / path)
    found = survey(tmp_path, by_name(kind))  # a hang here is the failure: the suite's own time limit ends it
    assert found.files == ()
    by_name(kind).factors(tmp_path)


@pytest.mark.parametrize("rank", ["99999999999", "9" * 5000, "3000000"])
def test_a_rank_without_end_costs_nothing(rank: str) -> None:
    artifact = f"torch_compile_cache/torch_aot_compile/{'a' * 64}/rank_{rank}_0/model"
    paths = [artifact, f"flashinfer_autotune_cache/a/autotune_configs_dp0_rank{rank}.json"]
    assert len(str([*missing_ranks(paths), *missing_tactics(paths)])) < 5000


def test_a_missing_rank_among_many_is_told_in_one_line() -> None:
    (finding,) = missing_ranks([f"torch_compile_cache/torch_aot_compile/{'a' * 64}/rank_90000_0/model"])
    assert "and 89990 more" in finding.message
    assert len(finding.line()) < 600


def test_more_ranks_than_any_machine_has_are_refused() -> None:
    with pytest.raises(UsageError) as refused:
        Vllm().serve(Model("/m", Path("/m"), "/m"), Target("sm_90"), ("--tensor-parallel-size", "999999999999"))
    assert refused.value.code == "too-many-ranks"


def group(root: Path, listed: dict[str, str]) -> list[str]:
    home = gpu_trees.kernel(root)
    (home / "__grp__add.json").write_text(json.dumps({"child_paths": {name: f"{top}/{home.name}/{name}" for name, top in listed.items()}}))
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return [finding.code for finding in by_name("triton").problems(root, paths)]


@pytest.mark.parametrize("names", [(), ("add.json",), ("add.cubin",), ("add.ttir", "add.ptx")])
def test_a_group_that_does_not_list_what_triton_needs_is_partial(names: tuple[str, ...], tmp_path: Path) -> None:
    assert "triton-partial" in group(tmp_path, dict.fromkeys(names, gpu_trees.LIVE))


def test_a_group_that_lists_a_kernel_that_is_gone_is_named_with_key_and_member(tmp_path: Path) -> None:  # case O-12
    home = gpu_trees.kernel(tmp_path)
    (home / "add.cubin").unlink()
    paths = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    (finding,) = by_name("triton").problems(tmp_path, paths)
    assert finding.code == "triton-partial"
    assert home.name in finding.message
    assert "add.cubin" in finding.message
    (home / "__grp__add.json").write_text('{"child_paths": {"add.cu')
    assert "triton-damaged" in {found.code for found in by_name("triton").problems(tmp_path, paths)}


def test_where_entries_lie_is_told_so_that_the_bake_can_compare(tmp_path: Path) -> None:
    group(tmp_path, dict.fromkeys(("add.json", "add.cubin"), "/tmp/evil/live/triton"))
    assert by_name("triton").factors(tmp_path)["directories"] == ["/tmp/evil/live/triton"]


def test_odd_metadata_is_told_and_can_be_written(tmp_path: Path) -> None:
    home = gpu_trees.kernel(tmp_path)
    document = json.loads((home / "add.json").read_text())
    (home / "add.json").write_text(json.dumps({**document, "triton_version": "\ud800"}))
    canonical(dict(by_name("triton").factors(tmp_path)))
    assert [architecture({"target": {"backend": "cuda", "arch": arch}}) for arch in ("90", 90.0, 90, True, "x", -1, 10**30)] == [
        90,
        90,
        90,
        0,
        0,
        0,
        0,
    ]
    (foreign, *_) = by_name("triton").problems(tmp_path, ["a\nb\x1b[31m"]) if (tmp_path / "a\nb\x1b[31m").write_text("x") else ()
    assert "\n" not in foreign.line()
    assert "\x1b" not in foreign.line()


@pytest.mark.parametrize("place", ["link", "file", "loop"])
def test_the_drivers_link_never_leads_out_of_live(place: str, tmp_path: Path) -> None:
    live, outside, library = tmp_path / "live", tmp_path / "outside", tmp_path / "libcuda.so.1"
    live.mkdir()
    outside.mkdir()
    library.write_text("a library")
    (outside / "libcuda.so.1").symlink_to("kept")
    spot = live / ".libcuda"
    if place == "link":
        spot.symlink_to(outside)
    elif place == "loop":
        spot.symlink_to(".libcuda")
    else:
        spot.write_text("x")
    assert libcuda.make({"TRITON_LIBCUDA_PATH": str(spot)}, str(live), str(library)) == []
    assert str((outside / "libcuda.so.1").readlink()) == "kept"
    assert (spot / "libcuda.so.1").readlink() == library
    (spot / "libcuda.so.1").unlink()
    (spot / "libcuda.so.1").write_text("another library")
    assert libcuda.make({"TRITON_LIBCUDA_PATH": str(spot)}, str(live), str(library)) == []
    assert (spot / "libcuda.so.1").readlink() == library
    (finding,) = libcuda.make({"TRITON_LIBCUDA_PATH": str(spot)}, str(live), str(tmp_path / "gone (deleted)"))
    assert finding.code == "driver-link"


@pytest.mark.parametrize("at", [40, 44, 58, 60, 62])
def test_a_header_that_claims_too_much_is_no_object(at: int, tmp_path: Path) -> None:
    data = bytearray(Path(sys.executable).resolve().read_bytes()[: 1 << 20])
    struct.pack_into("<H", data, at, 0xFFFF)
    (tmp_path / "a.so").write_bytes(bytes(data))
    found = objects.examine("inductor", tmp_path, ["a.so"], {"cpu.arch": os.uname().machine})
    assert all(finding.code == "object-damaged" for finding in found.findings)


def test_a_library_that_talks_does_not_spoil_a_document(tmp_path: Path) -> None:
    source = '#include <stdio.h>\n__attribute__((constructor)) static void hello(void) { puts("HELLO"); fflush(stdout); }\n'
    source += "int cuInit(int f) { return 100; }\nint cuDriverGetVersion(int *v) { return 1; }\n"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(tmp_path / "libcuda.so.1")], input=source, text=True, check=True)
    facts = bed.probe(sys.executable, tmp_path, {})  # it parses stdout
    assert facts["gpu.count"] == 0


def test_two_sets_of_one_name_are_a_damaged_manifest(tmp_path: Path) -> None:
    image = images.make(tmp_path / "image")
    image.document["sets"].append(image.document["sets"][0])
    image.write_manifest()
    with pytest.raises(ManifestError, match="stands twice"):
        parse((image.root / "manifest.json").read_bytes())
    image.thaw()


def test_an_image_that_another_build_wrote_meanwhile_is_never_lost(tmp_path: Path) -> None:
    where = f"oci:{tmp_path / 'image'}"
    first = sound.build(sound.write(tmp_path / "t"), tmp_path / "o", where, "one")
    recipe = sound.recipe(sound.write(tmp_path / "t2", {"a": b"1"}), tmp_path / "o")
    with pytest.raises(ArtifactError) as lost:
        Oci().publish(recipe, where, ["one", "two"], [], {"one": ""})
    assert (lost.value.code, lost.value.retryable) == ("output-changed", True)
    assert Oci().read(f"{where}:one").digest == first.digest
    with pytest.raises(UsageError):
        Oci().read(f"{where}:two")
    second = Oci().publish(recipe, where, ["one", "two"], [("application/vnd.test", b"{}")], {"one": first.digest})
    assert Oci().read(f"{where}:one").digest == Oci().read(f"{where}:two").digest == second.digest
    assert [data for _, data in Oci().referrers(second, "application/vnd.test")] == [b"{}"]
