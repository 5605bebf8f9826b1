"""Odd places, names and texts are refused before the warm-up, by the right class of error, and cost nobody a file."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.bakes import REPOSITORY, SERVE, Site, run

LONG = "x" * 300


def refused(site: Site, code: int, name: str, *options: str, serve: tuple[str, ...] = SERVE) -> None:
    """Build and plan both refuse, with one code, and no server was started."""
    for command in ("plan", "build"):
        done = run(*site.arguments("--json", *options, command=command, serve=serve))
        assert (done.code, done.error["code"]) == (code, name), done.text
        assert done.error["found"], done.text
        assert done.error["remedy"], done.text
    assert site.rounds() == []


@pytest.mark.parametrize("name", ["../../x", "a/b", "a b", "a\nb", "..", ".wh.x", "-x", "a:b", LONG])
def test_a_set_name_is_a_path_component_and_a_tag(site: Site, name: str) -> None:
    refused(site, 2, "bad-set", "--set", name)


@pytest.mark.parametrize("tail", ["a:b", "a\nb", os.fsdecode(b"\xff")])
def test_a_root_that_cannot_stand_on_path(site: Site, tail: str) -> None:
    refused(site, 2, "bad-root", "--root", f"{site.directory}/{tail}")


def test_a_destination_that_takes_no_image(site: Site) -> None:
    foreign, file = site.directory / "foreign", site.directory / "file"
    foreign.mkdir()
    (foreign / "mine.txt").write_text("x")
    file.write_text("x")
    refused(site, 2, "not-a-layout", "--output", f"oci:{foreign}")
    refused(site, 2, "not-a-layout", "--output", f"oci:{file}")
    refused(site, 2, "bad-tag", "--output", f"oci:{site.directory}/i:-bad")
    refused(site, 2, "unsupported-reference", "--output", str(site.directory / "i"))
    assert (foreign / "mine.txt").read_text() == file.read_text() == "x"


def test_places_that_a_build_would_empty_or_describe(site: Site) -> None:
    refused(site, 2, "conflict", "--output", f"oci:{site.root}/sets/image")
    refused(site, 2, "conflict", "--work", f"{site.root}/sets/work")
    refused(site, 2, "conflict", "--work", f"{site.model}/work")
    refused(site, 2, "conflict", "--output", f"oci:{site.work}/image")
    assert not site.root.exists()


def test_a_root_with_a_strangers_bin_keeps_it(site: Site) -> None:
    tool = site.root / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("precious")
    for _ in range(2):  # a first refusal must not make the place ours
        done = site.build("--json")
        assert (done.code, done.error["code"], done.error["found"]) == (3, "root-foreign", "bin"), done.text
    assert tool.read_text() == "precious"


def test_a_lock_that_is_a_link_empties_nothing(site: Site) -> None:
    target = site.directory / "target"
    target.write_text("precious")
    site.root.mkdir()
    (site.root / ".baker.lock").symlink_to(target)
    done = site.build("--json")
    assert (done.code, done.error["code"]) == (3, "root-not-writable"), done.text
    assert target.read_text() == "precious"


def test_text_that_is_not_utf8(site: Site) -> None:
    odd = os.fsdecode(b"\xff")
    refused(site, 2, "not-utf8", "--served-model", f"/mnt/{odd}")
    refused(site, 2, "not-utf8", serve=(*SERVE, "--name", odd))
    site.profile.write_text(site.profile.read_text().replace("serve: []", 'serve: ["a\\0b"]'))
    refused(site, 2, "not-utf8")
    site.profile.write_text(site.profile.read_text().replace("a\\0b", "\\ud800"))
    refused(site, 2, "not-utf8")


def test_a_secret_in_the_arguments_is_told_before_the_warm_up(site: Site) -> None:
    secret = "hf_" + "a" * 34
    refused(site, 5, "secret-found", serve=(*SERVE, "--name", secret))
    assert secret not in run(*site.arguments(command="plan", serve=(*SERVE, "--name", secret))).text


def test_variables_that_are_bakers_own(site: Site) -> None:
    site.profile.write_text(site.profile.read_text().replace("env: {", "env: {HOME: /x, BAKER_POLICY: strict, VLLM_CACHE_ROOT: /y, "))
    refused(site, 2, "owned-variable")


def test_a_profile_that_no_memory_holds(site: Site) -> None:
    text = site.profile.read_text()
    site.profile.write_text(text.replace("batch: 2, input: 24, output: 4, requests: 1", "batch: 4096, input: 4000, output: 100, requests: 1000"))
    refused(site, 2, "profile-too-large")


def test_names_longer_than_a_file_system_takes(site: Site) -> None:
    for option, value in (("--work", f"{site.directory}/{LONG}"), ("--root", f"/{LONG}"), ("--output", f"oci:{site.directory}/{LONG}")):
        done = site.build("--no-prove", option, value)
        assert done.code == 3, done.text
    for option, value, code in (("--model", "/" + LONG * 20, 2), ("--model", LONG * 20, 2), ("--served-model", "/" + LONG * 20, 3)):
        done = site.build("--no-prove", option, value)
        assert done.code == code, done.text


@pytest.mark.parametrize("digits", ["abc", "-1", "9" * 5000])
def test_a_bad_source_date_is_told_first(site: Site, monkeypatch: pytest.MonkeyPatch, digits: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", digits)
    refused(site, 2, "bad-source-date")


def test_an_interpreter_that_is_none(site: Site) -> None:
    refused(site, 3, "probe-failed", "--python", "/bin/true")


def test_relative_places(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(site.directory)
    done = site.build("--json", "--no-prove", "--work", "w", "--output", "oci:i")
    assert (done.code, done.document["reference"]) == (0, "oci:i:cpu"), done.text
    assert (site.directory / "w" / "strategies" / "aot" / "tree.json").exists()


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)])
def test_closed_standard_files(site: Site, closed: tuple[int, ...]) -> None:
    code = f"import os, runpy, sys\n[os.close(n) for n in {closed}]\nos.execv(sys.executable, [sys.executable, '-m', 'baker', *sys.argv[1:]])"
    words = site.arguments(command="plan")
    done = subprocess.run([sys.executable, "-c", code, *words], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr


def test_a_full_log_ends_no_build_and_a_full_stdout_is_no_bug(site: Site) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "baker", *site.arguments(command="plan")]
    with Path("/dev/full").open("w") as full:
        log = subprocess.run(command, env=environment, check=False, stdout=subprocess.PIPE, stderr=full)
        out = subprocess.run(command, env=environment, check=False, stdout=full, stderr=subprocess.PIPE)
    assert (log.returncode, log.stdout.split()[0]) == (0, b"plan")
    assert out.returncode == 3, out.stderr
    assert b"No space left" in out.stderr
    assert b"Traceback" not in out.stderr


def test_a_limit_of_the_machine_is_no_bug(site: Site) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "baker", *site.arguments(command="plan")],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert done.returncode == 3, done.stderr
    assert "ulimit -f" in done.stderr
