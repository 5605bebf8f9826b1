"""Kinds that no library can fill here: made trees are packed whole, damaged ones are named; what a reader learns from the bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baker.caches import ALL, by_name
from baker.caches.cute_dsl import intact
from baker.caches.numba import index_version
from baker.pack.tree import survey
from baker.runtimes.vllm import Vllm
from baker.spec import Target
from tests.bad import kind_trees

GPU = Target("sm_90", "NVIDIA H100 80GB HBM3")
NAMES = sorted({kind.name for kind in ALL})


@pytest.mark.parametrize("name", sorted(kind_trees.WHOLE))
def test_a_whole_tree_ships(name: str, tmp_path: Path) -> None:
    paths = kind_trees.write(tmp_path, kind_trees.WHOLE[name])
    found = survey(tmp_path, by_name(name))
    assert [file.path for file in found.files] == paths
    assert found.findings == ()


@pytest.mark.parametrize(("name", "what", "damage", "code"), kind_trees.DAMAGED, ids=[f"{k[0]}-{k[1]}".replace(" ", "-") for k in kind_trees.DAMAGED])
def test_a_damaged_tree_is_named(name: str, what: str, damage: Callable[[dict[str, bytes]], None], code: str, tmp_path: Path) -> None:
    tree = dict(kind_trees.WHOLE[name])
    damage(tree)
    paths = kind_trees.write(tmp_path, tree)
    findings = by_name(name).problems(tmp_path, paths)
    assert [finding.code for finding in findings] == [code], what
    assert all(finding.severity == "hard" and finding.kind == name and finding.remedy for finding in findings)


@pytest.mark.parametrize("name", sorted(kind_trees.WHOLE))
def test_what_allow_partial_leaves_out_is_the_whole_entry(name: str, tmp_path: Path) -> None:
    kind = by_name(name)
    for path in kind_trees.WHOLE[name]:
        assert path == kind.unit(path) or path.startswith(kind.unit(path) + "/")


def test_unfinished_builds_and_locks_stay_out(tmp_path: Path) -> None:
    for name, path in {
        "deep_gemm": "tmp/x/kernel.cu",
        "tilelang": "0.1.12/linux-x86_64/.staging/k_1_a/params.pkl",
        "quack": f"{kind_trees.KEY}/{kind_trees.OTHER}.lock",
        "tvm_ffi": "demo_0/lock",
        "hf_modules": "transformers_modules/a/weights.bin",
    }.items():
        root = tmp_path / name
        kind_trees.write(root, {path: b"x"})
        assert survey(root, by_name(name)).files == ()


def test_every_kind_is_filled_by_a_runtime() -> None:
    """A kind that no runtime names would never be pinned, and what it holds would land outside of live."""
    assert set(NAMES) == set(Vllm().kinds(GPU))
    assert set(Vllm().kinds(Target("cpu"))) < set(NAMES)


@given(data=st.binary(max_size=200))
def test_no_bytes_make_the_checksum_crash(data: bytes) -> None:
    assert intact(data) in (True, False)
    assert intact(kind_trees.module(data)) == bool(data)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(max_size=300), st.text(max_size=20).map(pickle.dumps), st.integers().map(pickle.dumps)))
def test_no_bytes_make_the_index_reader_crash_or_run_anything(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.nbi"
    path.write_bytes(data)
    assert isinstance(index_version(path), str)


def test_the_version_of_an_index_is_read_without_running_it(tmp_path: Path) -> None:

    path = tmp_path / "f-1.py311.nbi"
    path.write_bytes(pickle.dumps("0.65.0", protocol=-1) + b"cos\nsystem\n(S'exit 1'\ntR.")
    assert index_version(path) == "0.65.0"
    path.write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    assert index_version(path) == ""
