"""The log: what is masked, what is watched, and which error came first."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from baker.inside.job import Watch
from baker.inside.logtail import LINE_LIMIT, PER_RULE, FirstError, LogTail, Masker, argument_secrets, secrets

ROOT_CAUSE = """\
INFO 12-01 03:34:04 [api_utils.py:347] starting
(Worker pid=9) WARNING 12-01 03:34:04 [x.py:1] optional thing missing: Error: never mind
(Worker pid=9) WARNING 12-01 03:34:04 [x.py:1] Traceback (most recent call last):
(Worker pid=9) WARNING 12-01 03:34:04 [x.py:1]   File "a.py", line 1, in f
(Worker pid=9) WARNING 12-01 03:34:04 [x.py:1] ImportError: flash_attn
Exception ignored in: <function F.__del__ at 0x7f>
Traceback (most recent call last):
  File "b.py", line 2, in __del__
AttributeError: noise
(Worker pid=9) ERROR 12-01 03:34:05 [m.py:900] WorkerProc failed to start.
(Worker pid=9) ERROR 12-01 03:34:05 [m.py:900] Traceback (most recent call last):
(Worker pid=9) ERROR 12-01 03:34:05 [m.py:900]   File "w.py", line 3, in load
(APIServer pid=7) Traceback (most recent call last):
(Worker pid=9) ERROR 12-01 03:34:05 [m.py:900]     raise ValueError
(Worker pid=9) ERROR 12-01 03:34:05 [m.py:900] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
(Worker pid=9) ERROR 12-01 03:34:05 [m.py:900] GPU 0 has a total capacity of 8.00 GiB.
(Worker pid=9) ERROR 12-01 03:34:05 [m.py:900]
(APIServer pid=7)   File "x.py", line 1, in main
(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above.
"""


def _first(text: str) -> str:
    finder = FirstError()
    for line in text.splitlines():
        finder.feed(line)
    return finder.text


def test_root_cause_of_a_vllm_death() -> None:
    assert _first(ROOT_CAUSE) == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB."


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("", ""),
        ("all is well\nINFO 12-01 03:34:04 [a.py:1] error: none", ""),
        ("Traceback (most recent call last):\n  File 'x'\nKeyboardInterrupt\n", ""),
        ("Traceback (most recent call last):\n  File 'x'\nKeyError: 'a'\n\nDuring handling of the above exception:\n", "KeyError: 'a'"),
        (
            "k.cpp:1:10: fatal error: Python.h: No such file or directory\n1 | x\n2\n3\n4\nTraceback (most recent call last):\n  f\nA: b",
            "k.cpp:1:10: fatal",
        ),
        ("ERROR 12-01 03:34:04 [a.py:1] Engine failed.\nTraceback (most recent call last):\n  x\nValueError: cause\n", "ValueError: cause"),
        ("ERROR:    [Errno 98] address already in use\nINFO: Application shutdown\n", "[Errno 98] address already in use"),
        ("sh: 1: g++: command not found\n", "sh: 1: g++: command not found"),
        ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'\n", "ptxas fatal   : Value 'sm_121a'"),
        ("RuntimeError: said without a traceback\n", "RuntimeError: said without a traceback"),
        (
            "Traceback (most recent call last):\n  f\nInductorError: CppCompileError: C++ compile error\n Command:\n g++\n\nx",
            "InductorError: CppCompileError: C++ compile error Command: g++",
        ),
        ("Segmentation fault (core dumped)", "Segmentation fault"),
        ("Killed", "Killed"),
    ],
)
def test_first_error(text: str, first: str) -> None:
    assert _first(text).startswith(first)
    assert bool(_first(text)) == bool(first)


def _tail(tmp_path: Path, pieces: list[bytes], masker: Masker | None = None, watch: tuple[Watch, ...] = ()) -> tuple[LogTail, str]:
    reader, writer = os.pipe()
    tail = LogTail(reader, str(tmp_path / "log"), masker or Masker([]), watch, time.monotonic())
    for piece in pieces:
        while piece:
            piece = piece[os.write(writer, piece) :]
        time.sleep(0.01)
    os.close(writer)
    tail.close()
    return tail, (tmp_path / "log").read_text()


def test_secret_split_over_reads(tmp_path: Path) -> None:
    masker = Masker(["hf_SECRETVALUE"])
    _, text = _tail(tmp_path, [b"token hf_SEC", b"RETVALUE here\n", b"hf_SECRETVALUE", b"\nlast hf_SECRETVALUE"], masker)
    assert text == "token *** here\n***\nlast ***\n"


@pytest.mark.parametrize("offset", [-14, -7, -1, 0, 1, 5])
def test_secret_across_the_cut_of_an_endless_line(tmp_path: Path, offset: int) -> None:
    data = b"a" * (LINE_LIMIT + offset) + b"hf_SECRETVALUE" + b"b" * (2 * LINE_LIMIT)
    _, text = _tail(tmp_path, [data[:LINE_LIMIT], data[LINE_LIMIT : LINE_LIMIT + 3], data[LINE_LIMIT + 3 :]], Masker(["hf_SECRETVALUE"]))
    assert "SECRET" not in text
    assert "RETVALUE" not in text
    assert text.replace("\n", "").count("***") == 1
    assert len(text.replace("\n", "")) == len(data) - 14 + 3
    assert max(len(line) for line in text.splitlines()) <= LINE_LIMIT


def test_other_forms_of_a_secret(tmp_path: Path) -> None:
    pem = "-----BEGIN KEY-----\nAAAABBBB\n-----END KEY-----"
    masker = Masker(['pa"ss/wörd', pem])
    lines = ['pa"ss/wörd', '{"x": "pa\\"ss/w\\u00f6rd"}', "url=pa%22ss%2Fw%C3%B6rd", "AAAABBBB", repr(pem)]
    _, text = _tail(tmp_path, ["\n".join(lines).encode()], masker)
    assert text == '***\n{"x": "***"}\nurl=***\n***\n\'***\'\n'


def test_secrets_are_collected_and_short_ones_said() -> None:
    values, remarks = secrets(["A", "B", "C"], {"A": "long-one", "B": "x"}, {"A": "another", "C": ""})
    assert sorted(values) == ["another", "long-one"]
    assert remarks == ["B has fewer than 4 characters: not masked in the log"]
    argv = ["serve", "--api-key", "k1", "--hf-token=k2", "--max-tokens", "7", "--tokenizer", "t", "--api_key=k3"]
    assert argument_secrets(argv) == ["k1", "k2", "k3"]


def test_lines_are_stamped_with_stage_and_value(tmp_path: Path) -> None:
    watch = (
        Watch("init", "phase", r"init engine .* took ([0-9.]+) s"),
        Watch("odd", "phase", r"odd (\w+)"),
        Watch("all", "note", r"x"),
    )
    data = b"init engine (profile) took 3.75 s (compilation: 1 s)\rprogress x\r\nodd words\n" + b"x\n" * (PER_RULE + 5)
    tail, text = _tail(tmp_path, [data], watch=watch)
    assert (tail.lines[0].name, tail.lines[0].value, tail.lines[0].stage) == ("init", 3.75, "start")
    assert next(line for line in tail.lines if line.name == "odd").value is None
    assert sum(line.name == "all" for line in tail.lines) == PER_RULE
    assert tail.matched() == {"init", "odd", "all"}
    assert tail.remarks == ["watch rule odd: group 1 is 'words', expected seconds", f"watch rule all: {PER_RULE + 6} lines, {PER_RULE} kept"]
    assert text.startswith("init engine (profile) took 3.75 s (compilation: 1 s)\nprogress x\nodd words\nx\n")


def test_errors_of_the_ending_are_no_cause(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    tail = LogTail(reader, str(tmp_path / "log"), Masker([]), (), time.monotonic())
    tail.settled = True
    os.write(writer, b"Traceback (most recent call last):\n  x\nValueError: while ending\n")
    os.close(writer)
    tail.close()
    assert tail.first_error.text == ""
    assert tail.last_line == "ValueError: while ending"


def test_full_disk_does_not_block_the_server() -> None:
    reader, writer = os.pipe()
    tail = LogTail(reader, "/dev/full", Masker([]), (Watch("end", "note", "the end"),), time.monotonic())
    for _ in range(40):
        os.write(writer, b"y" * 5000 + b"\n")  # more than a pipe holds
    os.write(writer, b"the end\n")
    os.close(writer)
    tail.close()
    assert [line.text for line in tail.lines] == ["the end"]
    assert tail.remarks == ["the log is incomplete: No space left on device"]
