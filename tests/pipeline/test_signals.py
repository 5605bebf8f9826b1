"""Case O-45: a build that is ended at any point leaves no process, says where it stood, and goes on with the same command."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.bakes import LOADS, Done, Farm, Site, copy_runtime, until
from tests.sim.drive import leftovers

STUBBORN = {"stubborn": 2}


@dataclass(frozen=True)
class Story:
    """What a build left when it was ended, and what the same command did afterwards."""

    site: Site
    ended: Done
    seconds: float  # from the signal to the end of baker
    processes: list[str]
    state: dict[str, Any]
    partial: bool
    again: Done


def stubborn_children(site: Site) -> bool:
    """The scripted children that ignore INT and TERM live."""
    here = str(site.directory).encode()
    return any(here in line and b"SIG_IGN" in line for path in Path("/proc").glob("[0-9]*/cmdline") if (line := _read(path)))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it ended meanwhile


def asked(site: Site) -> bool:
    """The server has answered a request of the matrix: two completions, the first of which was the ready request."""
    path = site.directory / "requests"
    return path.exists() and len(path.read_text().splitlines()) >= 3


def tell(site: Site, faults: dict[str, Any], when: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Set the runtime's faults as soon as `when()` is true."""
    until(when, process)
    site.faults.write_text(json.dumps(faults))


def story(site: Site, signum: int, ready: Callable[[subprocess.Popen[str]], None], *options: str) -> Story:
    """Build, send `signum` once `ready` returns, look, heal the runtime, and give the same command again."""
    process = site.spawn("--json", *options)
    try:
        ready(process)
    except BaseException:
        process.terminate()
        process.communicate(timeout=60)
        raise
    began = time.monotonic()
    process.send_signal(signum)
    out, err = process.communicate(timeout=60)
    seconds = time.monotonic() - began
    # A killed baker cannot wait for its driver, which then ends by itself.
    limit = time.monotonic() + (30 if signum == signal.SIGKILL else 0)
    while (left := leftovers(site.directory)) and time.monotonic() < limit:
        time.sleep(0.1)
    state = site.state()
    partial = any(site.work.glob("strategies/*/partial.json"))
    site.faults.unlink(missing_ok=True)
    return Story(site, Done(process.returncode, out, err), seconds, left, state, partial, site.child("--json", *options))


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[Farm]:
    def place(name: str, faults: dict[str, Any] | None = None) -> Site:
        directory: Path = tmp_path_factory.mktemp(name)
        site = Site(directory, copy_runtime(python, directory / "rt"), LOADS)
        if faults:
            site.faults.write_text(json.dumps({**faults, "requests": str(directory / "requests")}))
        return site

    def load(signum: int) -> Story:
        site = place("load", {**STUBBORN, "unavailable_s": 100})
        return story(site, signum, lambda process: until(lambda: stubborn_children(site), process), "--no-prove")

    def matrix(signum: int) -> Story:
        site = place("matrix", {**STUBBORN, "step_s": 0.3})
        return story(site, signum, lambda process: until(lambda: asked(site), process), "--no-prove")

    def second_round(signum: int) -> Story:
        site = place("second")

        def ready(process: subprocess.Popen[str]) -> None:
            tell(site, {**STUBBORN, "new_file": True, "step_s": 0.3}, lambda: site.state().get("round") == 2, process)
            until(lambda: stubborn_children(site), process)

        return story(site, signum, ready, "--no-prove")

    def proof(signum: int) -> Story:
        site = place("proof")

        def ready(process: subprocess.Popen[str]) -> None:
            tell(site, {**STUBBORN, "unavailable_s": 100}, lambda: site.state().get("stage") == "proof", process)
            until(lambda: stubborn_children(site), process)

        return story(site, signum, ready)

    farm = Farm(
        {
            "load-term": lambda: load(signal.SIGTERM),
            "matrix-int": lambda: matrix(signal.SIGINT),
            "second-term": lambda: second_round(signal.SIGTERM),
            "second-kill": lambda: second_round(signal.SIGKILL),
            "proof-term": lambda: proof(signal.SIGTERM),
            "proof-kill": lambda: proof(signal.SIGKILL),
        },
        workers=6,
    )
    yield farm
    farm.close()


WHERE = {"load": "warm-up", "matrix": "warm-up", "second": "warm-up", "proof": "proof"}
CODES = {"term": 143, "int": 130, "kill": -signal.SIGKILL}


@pytest.mark.parametrize("name", ["load-term", "matrix-int", "second-term", "second-kill", "proof-term", "proof-kill"])
def test_nothing_is_left_and_the_same_command_ends_well(stories: Farm, name: str) -> None:
    found: Story = stories[name]
    point, sign = name.split("-")
    assert found.ended.code == CODES[sign], found.ended.text
    assert found.processes == []
    assert found.state["stage"] == WHERE[point]
    assert found.seconds < 45
    assert found.again.code == 0, found.again.text
    assert found.again.document["verdict"] == ("proven" if point == "proof" else "unproven")
    if sign != "kill":
        error = found.ended.error
        assert error["retryable"] is True
        assert "same command" in error["remedy"]


@pytest.mark.parametrize("name", ["second-term", "second-kill"])
def test_whole_rounds_are_not_played_again(stories: Farm, name: str) -> None:
    found: Story = stories[name]
    assert found.state["round"] == 2
    assert found.partial
    assert "going on after round 1 of an earlier run" in found.again.err
    assert "round 1: starting" not in found.again.err
    # The interrupted round wrote one more .py file; nothing of it may ship.
    (document,) = (json.loads(path.read_text()) for path in found.site.work.glob("strategies/aot/tree.json"))
    names = [path.rpartition("/")[2] for path in document["inventory"]["vllm"]]
    assert not [name for name in names if name.endswith(".py") and len(name) == 35]
    assert [len(r["files"]["new"]) > 0 for r in document["rounds"]] == [True, False]


@pytest.mark.parametrize("name", ["proof-term", "proof-kill"])
def test_a_warmed_tree_is_not_warmed_again(stories: Farm, name: str) -> None:
    again = stories[name].again
    assert "warmed in an earlier run, tree intact" in again.err
    assert "starting the server" not in again.err
