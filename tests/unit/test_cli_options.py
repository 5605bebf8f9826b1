"""The shared arguments of build and plan: what they become, and what each slip gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from baker import executors, runtimes
from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.cli.options import ServeCommand, request_options
from baker.cli.render import exit_code_of
from baker.request import BuildRequest

got: list[BuildRequest] = []


@baker_command("build", cls=ServeCommand)
@request_options
def build(console: Console, request: BuildRequest) -> None:
    got.append(request)


def parse(*args: str) -> BuildRequest:
    got.clear()
    build.main(["--arch", "cpu", "--model", "M", *args], standalone_mode=False)
    return got[0]


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert exit_code_of(lambda: build.main(list(args), prog_name="baker build", standalone_mode=False), as_json=True) == 2
    document: dict[str, Any] = json.loads(capsys.readouterr().out)["error"]
    return document


def test_defaults_are_those_of_the_request() -> None:
    assert parse() == BuildRequest("cpu", "M")


def test_every_field_can_be_set(tmp_path: Path) -> None:
    text = {"served_model": "/mnt/models", "profile": "smoke", "base": "scratch", "output": "oci:x", "root": "/r", "python": "p", "set_name": "s"}
    args = [word for name, value in text.items() for word in ("--" + name.removesuffix("_name").replace("_", "-"), value)]
    args += ["--weights", "dummy", "--compression", "zstd", "--work", str(tmp_path), "--force", "--allow-partial", "--try-all"]
    expected = BuildRequest("cpu", "M", **text, weights="dummy", compression="zstd", work=tmp_path, force=True, allow_partial=True, try_all=True)  # type: ignore[arg-type]
    assert parse(*args) == expected
    assert not parse("--no-prove").prove


def test_everything_after_the_dashes_belongs_to_the_server() -> None:
    assert parse("--force", "--", "--max-num-seqs", "4", "--json", "-v", "--", "x").serve == ("--max-num-seqs", "4", "--json", "-v", "--", "x")
    assert parse("--").serve == ()


def test_a_stray_word_before_the_dashes_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "stray" in refused(capsys, "--arch", "cpu", "--model", "M", "stray", "--", "--x")["message"]


@pytest.mark.parametrize(
    ("args", "code", "remedy"),
    [
        (["--arch", "sm90"], "unknown-arch", "did you mean sm_90?"),
        (["--arch", "sm_70"], "unknown-arch", ""),
        (["--arch", "cpu", "--weights", "dumy"], "unknown-value", "did you mean dummy?"),
        (["--arch", "cpu", "--compression", "xz"], "unknown-value", ""),
        (["--arch", "cpu", "--executor", "lokal"], "unknown-value", "did you mean local?"),
        (["--arch", "cpu", "--runtime", "vlm"], "unknown-value", "did you mean vllm?"),
        (["--arch", "cpu", "--gpu", "NVIDIA H200"], "conflict", "drop one"),
        (["--arch", "cpu", "--try-all", "--no-prove"], "conflict", "drop one"),
        (["--arch", "cpu", "--pofile", "x"], "unknown-option", "did you mean --profile?"),
        ([], "usage", "baker build --help"),
    ],
)
def test_slips(capsys: pytest.CaptureFixture[str], args: list[str], code: str, remedy: str) -> None:
    document = refused(capsys, *args, *(["--model", "M"] if args else []))
    assert document["code"] == code
    assert remedy in document["remedy"]


@pytest.mark.parametrize("option", ["--push", "--format", "--mount", "--tag"])
def test_nothing_is_offered_that_does_not_exist(capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert refused(capsys, "--arch", "cpu", "--model", "M", option, "x")["code"] == "unknown-option"


def test_choices_come_from_the_doors() -> None:
    text = build.get_help(click.Context(build, info_name="baker build"))
    for folder in (runtimes, executors):
        for item in folder.ALL:
            assert item.name in text
    assert "[-- SERVE ARGS...]" in text
