"""What counts as a compile, and how record files become events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from baker.inside.events import compiles, read, request_dump

COMPILES = [
    "g++ a.cpp -o a.so",
    "/usr/bin/x86_64-linux-gnu-g++-12 -shared -fPIC main.cpp -o main.so",
    "gcc -c x.c",
    "gcc -v x.c",
    "cc -x c -",
    "c++ @args.rsp",
    "clang-18 -O3 k.c",
    "clang++ -target x86_64-linux-gnu k.cc",
    "g++ -E real.h",
    "g++ -x c++-header prefix.h -o prefix.h.gch",
    "g++ -- -odd-name.cpp",
    "nvcc -arch sm_90 k.cu",
    "nvcc --options-file flags.txt",
    "/usr/local/cuda/nvvm/bin/cicc --arch=compute_90 k.ii",
    "ptxas -lineinfo -v --gpu-name=sm_90a k.ptx -o k.cubin",
    "ptxas-blackwell --gpu-name=sm_100a k.ptx -o k.cubin",
    "fatbinary --create=x.fatbin --image3=kind=elf,sm=90,file=k.cubin",
    "nvlink a.o -o b",
    "ld -r -b binary -z noexecstack -o blob.o blob.bin",
    "ld.lld a.o",
    "aarch64-linux-gnu-ld.bfd a.o",
    "as -o x.o",
    "as x.s",
    "ninja",
    "ninja -v -C build",
    "ninja-build all",
    "ccache g++ -c x.cpp",
    "env -u X CC=gcc LANG=C g++ -c x.cpp",
    "icpx -c x.cpp",
    "hipcc k.hip",
]
ASKS = [
    "g++ --version",
    "g++ -v",
    "gcc -dumpversion",
    "gcc -dumpmachine x.c",
    "gcc -print-file-name=libgomp.so",
    "clang --print-search-dirs",
    "g++ --help",
    "g++ --version x.cpp",
    "g++ -E -dM -",
    "g++ -E -dM -x c++ /dev/null",
    "g++ -Q --help=target",
    "gcc -### x.c",
    "nvcc --version",
    "nvcc -V",
    "nvcc --list-gpu-arch",
    "ptxas --version",
    "ld --version",
    "ld -v",
    "as --version",
    "ninja --version",
    "ninja -t restat",
    "ninja -n",
    "python -c pass",
    "git log",
    "/opt/as/run x",
    "ldconfig -p",
    "asdf g++",
    "cat g++ x.cpp",
]


@pytest.mark.parametrize("text", COMPILES)
def test_compiles(text: str) -> None:
    argv = text.split()
    assert compiles(argv)
    assert compiles(["sh", "-c", text])
    assert compiles(["/bin/bash", "-ec", f"cd /tmp && X=1 {text} 2>&1 | cat"])
    assert compiles(text)


@pytest.mark.parametrize("text", ASKS)
def test_asks(text: str) -> None:
    assert compiles(text.split()) == ""
    assert compiles(["sh", "-c", f"{text}; true"]) == ""


def test_shell_without_script_and_broken_quotes() -> None:
    assert compiles(["sh"]) == ""
    assert compiles(["sh", "build.sh"]) == ""
    assert compiles("g++ 'unbalanced.cpp")
    assert compiles([]) == ""


def _write(directory: Path, pid: int, lines: list[dict[str, Any]], tail: str = "") -> None:
    text = "".join(json.dumps({"t": 100.0 + i, **line}) + "\n" for i, line in enumerate(lines))
    (directory / f"{pid}.jsonl").write_text(text + tail)


def _when(t: float) -> tuple[float, str]:
    return t - 100, "start" if t < 102 else "play"


def test_counters_become_growth_and_events(tmp_path: Path) -> None:
    _write(
        tmp_path,
        7,
        [
            {"e": "start"},
            {"e": "counters", "inductor": {"fxgraph_cache_miss": 1, "extern_calls": 5}},
            {"e": "counters", "inductor": {"fxgraph_cache_miss": 3, "extern_calls": 5}, "aot_autograd": {"autograd_cache_hit": 1}},
            {"e": "counters", "inductor": {"fxgraph_cache_miss": 2}},  # cleared in between
            {"e": "counters", "aot_autograd": {"autograd_cache_bypass": 1}},
        ],
    )
    record = read(str(tmp_path), _when)
    assert record.counters == {
        "inductor.fxgraph_cache_miss": 5,
        "inductor.extern_calls": 5,
        "aot_autograd.autograd_cache_hit": 1,
        "aot_autograd.autograd_cache_bypass": 1,
    }
    assert [(e.kind, e.stage, e.at_s) for e in record.events] == [
        ("inductor-miss", "start", 1),
        ("inductor-miss", "play", 2),
        ("inductor-miss", "play", 3),
        ("inductor-bypass", "play", 4),
    ]
    assert record.events[1].detail == "inductor.fxgraph_cache_miss +2"


def test_a_forked_child_does_not_count_twice(tmp_path: Path) -> None:
    _write(tmp_path, 8, [{"e": "start", "forked": True}, {"e": "base", "inductor": {"fxgraph_cache_miss": 4}}])
    assert read(str(tmp_path), _when).events == []
    _write(
        tmp_path,
        9,
        [{"e": "base", "inductor": {"fxgraph_cache_miss": 4}}, {"e": "counters", "inductor": {"fxgraph_cache_miss": 5}}],
    )
    assert [e.detail for e in read(str(tmp_path), _when).events] == ["inductor.fxgraph_cache_miss +1"]


def test_posix_spawn_below_popen_is_one_child(tmp_path: Path) -> None:
    argv = ["g++", "a.cpp"]
    lines = [
        {"e": "child", "how": "subprocess.Popen", "argv": argv, "t": 100.0},
        {"e": "child", "how": "os.posix_spawn", "argv": argv, "t": 100.001},
        {"e": "child", "how": "subprocess.Popen", "argv": argv, "t": 100.002},
        {"e": "child", "how": "os.system", "argv": "ninja -C x", "t": 100.003},
    ]
    _write(tmp_path, 7, lines)
    assert [e.detail for e in read(str(tmp_path), _when).events] == ["g++ a.cpp", "g++ a.cpp", "ninja -C x"]


def test_torn_lines_are_counted_and_unknown_ones_left_alone(tmp_path: Path) -> None:
    _write(tmp_path, 7, [{"e": "start"}, {"e": "of-tomorrow"}, {"e": "triton", "hit": False, "name": "k", "key": "ab"}], '{"e": "trit')
    _write(tmp_path, 8, [], "[1]\nnull\n\xff\n")
    (tmp_path / "notes.txt").write_text("not a record")
    record = read(str(tmp_path), _when)
    assert [(e.kind, e.detail) for e in record.events] == [("triton-compile", "k ab")]
    assert record.torn == 4
    assert record.remarks() == ["4 torn lines in the record"]


def test_observed(tmp_path: Path) -> None:
    _write(tmp_path, 1, [{"e": "start"}, {"e": "torch"}])
    _write(tmp_path, 2, [{"e": "start"}])  # killed before the heartbeat
    _write(tmp_path, 3, [{"e": "start"}, {"e": "end", "torch": False}])  # only a library was loaded
    record = read(str(tmp_path), _when)
    assert [record.observed(pid, True) for pid in (1, 2, 3, 4)] == [True, False, True, False]
    assert [record.observed(pid, False) for pid in (1, 2, 3, 4)] == [True, True, True, False]


def test_masked_and_recorder_errors(tmp_path: Path) -> None:
    _write(tmp_path, 1, [{"e": "child", "argv": ["g++", "-DKEY=s3cret", "a.cpp"]}, {"e": "recorder-error", "error": "OSError: s3cret"}])
    record = read(str(tmp_path), _when, lambda text: text.replace("s3cret", "***"))
    assert record.events[0].detail == "g++ -DKEY=*** a.cpp"
    assert record.remarks() == ["recorder in process 1: OSError: ***"]


def test_dump_requests_are_distinct(tmp_path: Path) -> None:
    first = request_dump(str(tmp_path))
    assert request_dump(str(tmp_path)) != first
