"""The classifier over generated command lines."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from baker.inside import recorder
from baker.inside.events import compiles

TOOLS = st.sampled_from(["gcc", "g++", "cc", "c++", "clang", "clang++", "icpx", "nvcc", "x86_64-linux-gnu-g++", "aarch64-linux-gnu-gcc"])
VERSIONS = st.sampled_from(["", "-12", "-18", "-9.4", "12"])
OPTIONS = st.sampled_from(["-O3", "-shared", "-fPIC", "-v", "-DX=1", "-I/usr/include", "-lm", "-march=native", "-pipe", "-c"])
PAIRS = st.sampled_from(
    [("-o", "out.so"), ("-x", "c++"), ("-I", "include"), ("-isystem", "dir"), ("-MF", "deps"), ("-include", "pre.h"), ("-arch", "sm_90")]
)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789_ ./é'\"$", min_size=1, max_size=12).filter(lambda s: s.strip())
INPUTS = st.builds(lambda stem, suffix: "/tmp/" + stem + suffix, NAMES, st.sampled_from([".cpp", ".c", ".cu", ".s", ".o", ""]))
QUESTIONS = st.sampled_from(["--version", "-dumpversion", "-dumpmachine", "-print-search-dirs", "--help", "-###"])


@st.composite
def options(draw: st.DrawFn) -> list[str]:
    words = draw(st.lists(st.one_of(OPTIONS.map(lambda o: [o]), PAIRS.map(list)), max_size=6))
    return [word for group in words for word in group]


@st.composite
def compilations(draw: st.DrawFn) -> list[str]:
    directory = draw(st.sampled_from(["", "/usr/bin/", "/opt/a b/"]))
    return [directory + draw(TOOLS) + draw(VERSIONS), *draw(options()), draw(INPUTS), *draw(options())]


@given(compilations())
def test_a_compiler_with_an_input_compiles(argv: list[str]) -> None:
    assert compiles(argv)


@given(compilations(), st.sampled_from(["sh", "/bin/bash"]), st.sampled_from(["-c", "-lc"]))
def test_a_shell_changes_nothing(argv: list[str], shell: str, flag: str) -> None:
    assert compiles([shell, flag, shlex.join(argv)])


@given(TOOLS, VERSIONS, options())
def test_without_an_input_nothing_is_compiled(tool: str, version: str, words: list[str]) -> None:
    assert compiles([tool + version, *words]) == ""


@given(compilations(), QUESTIONS, st.integers(0, 20))
def test_a_question_is_never_a_compile(argv: list[str], question: str, at: int) -> None:
    assert compiles([argv[0], question, *argv[1:]]) == ""


@given(st.one_of(st.text(), st.lists(st.text())))
def test_any_command_line_has_an_answer(command: str | list[str]) -> None:
    assert isinstance(compiles(command), str)


@given(st.one_of(compilations(), compilations().map(lambda argv: ["sh", "-c", shlex.join(argv)]), st.lists(st.text(max_size=8), min_size=1)))
def test_the_recorder_keeps_everything_that_counts(argv: list[str]) -> None:
    """Its filter is coarser than the rule: what compiles is never filtered out."""
    if compiles(argv):
        assert recorder._COMPILER.search(" ".join(argv))


@given(st.sampled_from("as ld ld.lld ld.gold lld gold cicc ptxas ptxas-blackwell fatbinary nvlink ninja ninja-build samu cc1plus collect2".split()))
def test_the_recorder_knows_every_tool(tool: str) -> None:
    argv = ["/opt/bin/" + tool, "x.o"]
    assert compiles(argv)
    assert recorder._COMPILER.search(" ".join(argv))
