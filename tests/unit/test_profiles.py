"""Profiles: the shipped ones are exact, and every odd document gets a clear error and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from baker import profiles
from baker.errors import UsageError
from baker.spec import Entry, Profile

GOOD = """
name: mine
description: test
serve: [--max-num-seqs, "4"]
env: {VLLM_CPU_KVCACHE_SPACE: "1"}
stages:
  - {name: one, batch: 1, input: 8, output: 4, requests: 2}
  - {name: two, batch: 2, input: 8, output: 4, requests: 1}
"""


def write(path: Path, text: str | bytes) -> Path:
    file = path / "mine.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def problems(path: Path, text: str) -> list[profiles.Problem]:
    checked = profiles.validate(write(path, text))
    assert not isinstance(checked, Profile), "the document was accepted"
    return checked


def test_default_is_the_five_entries_in_their_order() -> None:
    assert profiles.load("default").entries == (
        Entry("single-short", 1, 128, 50, 3),
        Entry("single-long", 1, 4096, 100, 2),
        Entry("batch-mid", 4, 512, 100, 5),
        Entry("batch-large", 8, 256, 50, 3),
        Entry("batch-max", 16, 128, 30, 2),
    )


def test_every_shipped_profile_loads_under_its_file_name() -> None:
    assert {"default", "smoke"} <= set(profiles.names())
    for name in profiles.names():
        assert profiles.load(name).name == name


def test_a_file_loads_with_serve_and_env(tmp_path: Path) -> None:
    profile = profiles.load(str(write(tmp_path, GOOD)))
    assert profile.serve == ("--max-num-seqs", "4")
    assert profile.env == {"VLLM_CPU_KVCACHE_SPACE": "1"}
    assert [entry.name for entry in profile.entries] == ["one", "two"]
    assert profile.document()["entries"][0]["batch"] == 1
    assert "description" not in profile.document()


def test_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="unknown profile 'defualt'") as caught:
        profiles.load("defualt")
    assert caught.value.remedy == "did you mean default?"
    assert "smoke" in caught.value.expected


@pytest.mark.parametrize("name", ["nowhere/x.yaml", "gone.yaml", "./"])
def test_a_path_that_is_no_file(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        profiles.load(name)
    assert caught.value.code == "profile-missing"


@pytest.mark.parametrize(
    ("old", "new", "where", "words"),
    [
        ("batch: 2", "batch: 0", "stages[1].batch", ">= 1"),
        ("batch: 2", "batch: 4097", "stages[1].batch", "<= 4096"),
        ("batch: 2", 'batch: "2"', "stages[1].batch", "int"),
        ("batch: 2", "batch: 2.5", "stages[1].batch", "int"),
        ("batch: 2", "batch: true", "stages[1].batch", "int"),
        ("batch: 2", "batch: [2]", "stages[1].batch", "a list"),
        ("input: 8", "input: 0", "stages[0].input", ">= 1"),
        ("output: 4", "output: -1", "stages[0].output", ">= 1"),
        ("requests: 1", "requests: 0", "stages[1].requests", ">= 1"),
        ("requests: 1", "requests: 1e3", "stages[1].requests", "int"),
        ("batch: 2", "bacth: 2", "stages[1].bacth", "did you mean batch?"),
        (", requests: 1", "", "stages[1].requests", "missing"),
        ("name: two", "name: one", "stages[1].name", "stages[0]"),
        ("name: two", "name: ../two", "stages[1].name", "../two"),
        ("name: two", "name: 2", "stages[1].name", "quotes"),
        ('"4"', "4", "serve[1]", "quotes"),
        ('"1"', "1", "env.VLLM_CPU_KVCACHE_SPACE", "quotes"),
        ("VLLM_CPU_KVCACHE_SPACE", "A-B", "env.A-B", "underscores"),
        ("VLLM_CPU_KVCACHE_SPACE", "HF_TOKEN", "env.HF_TOKEN", "secret"),
        ("stages:", "stage:", "stage", "did you mean stages?"),
        ("name: mine", "", "name", "missing"),
    ],
)
def test_each_problem_is_named_with_its_place(tmp_path: Path, old: str, new: str, where: str, words: str) -> None:
    found = problems(tmp_path, GOOD.replace(old, new))
    assert any(problem.where.startswith(where) and words in problem.line() for problem in found), [p.line() for p in found]


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("batch: 1", "batch: 0").replace("batch: 2", "bacth: 2")
    found = problems(tmp_path, text)
    assert {p.where for p in found} == {"stages[0].batch", "stages[1].bacth", "stages[1].batch"}
    with pytest.raises(UsageError) as caught:
        profiles.load(str(tmp_path / "mine.yaml"))
    assert "and 2 more" in caught.value.message
    assert len(caught.value.details["problems"]) == 3


@pytest.mark.parametrize("text", ["", "[]", "just text", "42", "null", "- name: x"])
def test_not_a_mapping(tmp_path: Path, text: str) -> None:
    assert "not a mapping" in problems(tmp_path, text)[0].line()


@pytest.mark.parametrize("stages", ["[]", "{}", "null", "[1]", '["x"]', "[[]]"])
def test_stages_that_are_none(tmp_path: Path, stages: str) -> None:
    assert problems(tmp_path, f"name: x\nstages: {stages}\n")[0].where.startswith("stages")


def bomb() -> str:
    """Nine lines that would expand to 9**9 values."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    lines += [f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (bomb(), "alias"),
        ("name: a\nname: b\n", "twice"),
        ("stages:\n- {name: a, batch: 1, batch: 2}\n", "twice"),
        ("name: [unclosed", "line 1"),
        ("a: 1\n---\nb: 2\n", "document"),
        ("[" * 5000, "nested"),
        (b"\xff\xfe\x00n", "UTF-8"),
        ("name: \x07", "special characters"),
        ("? [a, b]\n: 1\n", "key"),
        ("name: 2001-99-99\n", "month"),
        (b"# " + b"x" * (10 << 20), "bytes"),
    ],
)
def test_odd_documents_fail_quickly_and_clearly(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        profiles.load(str(write(tmp_path, text)))
    assert caught.value.exit_code == 2
    assert caught.value.expected


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!python/object/new:os.mkdir", "!custom"])
def test_hostile_tags_never_execute(tmp_path: Path, tag: str) -> None:
    target = tmp_path / "made"
    with pytest.raises(UsageError, match="constructor"):
        profiles.load(str(write(tmp_path, f"name: {tag} ['mkdir {target}', '{target}']\n")))
    assert not target.exists()
