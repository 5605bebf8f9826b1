"""Two judgements of a GPU proof: every rank's artifact was loaded; ninja with nothing to do is no compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from baker.inside import ninja
from baker.inside.events import Record, compiles
from baker.inside.job import Event, JobResult, Line, RequestResult, StageResult
from baker.inside.manifest import CacheSet, FileEntry, Kind, Row
from baker.steps import loads, virtually

AOT = "torch_compile_cache/torch_aot_compile/0a"
SHA = "0" * 64


def cache_set(*ranks: str, **raw: Any) -> CacheSet:
    files = tuple(FileEntry(f"{AOT}/{rank}/model", 1, SHA) for rank in ranks)
    kind = Kind("vllm", {}, (Row("gpu.cc", "eq", "9.0", "hard", "vllm", ""),), files)
    strategy = {"load_lines": ["aot-loaded"], "load_files": ["vllm/torch_compile_cache/torch_aot_compile/*/rank_*/model"]}
    return CacheSet("s", {}, strategy, {}, {}, {}, (kind,), raw)


def result(*texts: str) -> JobResult:
    lines = [Line("aot-loaded", "loaded", text, 1.0, "start", None) for text in texts]
    return JobResult(status="ok", lines=lines)


def load_line(rank: str) -> str:
    return f"(Worker pid=7) INFO Directly load AOT compilation from path /opt/baker/live/vllm/{AOT}/{rank}/model"


def test_every_rank_must_say_that_it_loads() -> None:
    both = cache_set("rank_0_0", "rank_1_0")
    assert loads.findings("bare-1", result(load_line("rank_0_0"), load_line("rank_1_0")), both) == []
    (missing,) = loads.findings("bare-1", result(load_line("rank_0_0")), both)
    assert (missing.code, missing.severity, missing.found) == ("proof-not-loaded", "hard", "1 of 2 loaded")
    assert "rank_1_0" in missing.message
    assert [finding.code for finding in loads.findings("bare-1", result(), both)] == ["proof-no-load-line"]


def test_names_of_ranks_are_not_constructed() -> None:
    assert loads.findings("bare-1", result(load_line("rank_0_0_dev0")), cache_set("rank_0_0_dev0")) == []


def test_a_virtual_set_does_not_judge_tokens_and_says_so() -> None:
    virtual = cache_set("rank_0_0", virtual={"mode": "cross", "left_out": ["triton/*.autotune.json", "vllm/*.best_config"]})
    assert virtually.left_out(virtual, "triton") == ["*.autotune.json"]
    assert virtually.left_out(virtual, "nv") == []
    assert virtually.left_out(cache_set("rank_0_0", virtual={"left_out": 7}), "vllm") == []
    assert [finding.code for finding in virtually.findings(virtual, True, [])] == ["virtual-gpu"]
    assert virtually.findings(cache_set("rank_0_0"), False, []) == []


def test_on_a_real_gpu_starts_of_a_virtually_baked_set_are_compared_with_one_another() -> None:
    virtual = cache_set("rank_0_0", virtual={"mode": "cross"})

    def answer(token: int) -> JobResult:
        return JobResult(status="ok", stages=[StageResult("reference", [RequestResult(True, 200, 0.1, 0.2, 4, 2, [token, token])])])

    assert [finding.code for finding in virtually.findings(virtual, False, [answer(1), answer(1)])] == ["tokens-no-reference"]
    codes = {finding.code: finding.severity for finding in virtually.findings(virtual, False, [answer(1), answer(2)])}
    assert codes == {"tokens-no-reference": "soft", "proof-tokens": "hard"}


@pytest.mark.parametrize(
    ("command", "is_compile"),
    [
        ("ld -t -L /a -L /b -o /dev/null -lcublas", False),  # ctypes.util.find_library
        ("ld -t -o /dev/null -lcuda", False),
        ("ld -shared a.o -o /dev/null", True),
        ("ld -o out -lcublas a.o", True),
    ],
)
def test_a_linker_that_is_asked_where_a_library_lies(command: str, is_compile: bool) -> None:
    assert bool(compiles(command.split())) is is_compile


def event(detail: str, kind: str = "child-compiler") -> Event:
    return Event(kind, 1, detail, "start", 0.0)


def test_ninja_in_a_watched_directory_is_judged_by_the_files_there(tmp_path: Path) -> None:
    module = tmp_path / "live" / "flashinfer" / "cached_ops" / "sampling"
    module.mkdir(parents=True)
    inside, outside = f"ninja -v -C {module} -f {module}/build.ninja", "ninja -C /var/elsewhere"
    record = Record(events=[event(inside), event(outside), event("g++ a.cpp"), event("add K", "triton-compile")])
    remarks = ninja.set_aside(record, {"live/flashinfer": str(tmp_path / "live" / "flashinfer")})
    assert [one.detail for one in record.events] == [outside, "g++ a.cpp", "add K"]
    assert len(remarks) == 1
    assert str(module) in remarks[0]


@pytest.mark.parametrize(
    ("command", "directory"),
    [
        ("ninja -v -C /a/b -f x", "/a/b"),
        ("/usr/bin/ninja -C/a/b", "/a/b"),
        ("ninja", ""),
        ("ninja all", ""),
        ("gcc -C /a", ""),
        ("ninja -C '/a", ""),
        ("ninja -C '/a b'", "/a b"),
    ],
)
def test_directory_of_a_ninja_run(command: str, directory: str) -> None:
    found = ninja.directory(command)
    assert found == directory or (command.endswith("'/a") and found == "'/a")
