"""A server that does not do what it should: exit 4 with the first error of its log, the stage, and the log's path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.bakes import LOADS, Done, Farm, Site, copy_runtime

Story = tuple[Site, Done]
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
KEY = "sk-simulated-key-0123456789abcdef"
SCRIPTS: dict[str, dict[str, Any]] = {
    "oom-start": {"die": {"when": "start", "first": OOM}},
    # The ready request and one of `single` are answered; request 3 is the second of `single`.
    "oom-stage": {"die": {"when": "request", "at": 4, "first": OOM}},
    "root-cause": {"die": {"when": "start", "first": "ValueError: the first error", "last": "RuntimeError: see root cause above"}},
    "killed": {"die": {"when": "start", "signal": 9}},
    "refused": {"refuse": {"status": 400, "length": 24}},
    "late": {**LOADS, "listen_early": True, "ready_after_s": 0.5, "unavailable_s": 2},
    "cut": {"cut_after": 2},
}


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[Farm]:
    def build(name: str, script: dict[str, Any], *options: str, serve: tuple[str, ...] = ("--max-model-len", "4224"), **env: str) -> Story:
        place = Site(tmp_path_factory.mktemp(name), python, script)
        return place, place.child("--json", *options, serve=serve, env=env)

    scenarios = {name: (lambda name=name, script=script: build(name, script, "--no-prove")) for name, script in SCRIPTS.items()}
    scenarios["key-argument"] = lambda: build("key-argument", LOADS, "--no-prove", serve=("--max-model-len", "4224", "--api-key", KEY))
    scenarios["key-variable"] = lambda: build("key-variable", LOADS, "--no-prove", VLLM_API_KEY=KEY)
    farm = Farm(scenarios, workers=6)
    yield farm
    farm.close()


def test_out_of_memory_at_start_and_in_a_stage_are_two_messages(stories: Farm) -> None:
    """O-37."""
    (_, start), (site, stage) = stories["oom-start"], stories["oom-stage"]
    assert (start.code, stage.code) == (4, 4), start.text + stage.text
    assert "before it was ready" in start.error["message"]
    assert "in stage pair" in stage.error["message"]
    assert stage.error["details"]["stage"] == "pair"
    for done in (start, stage):
        assert "out of memory" in done.error["found"]
        assert "--max-num-seqs" in done.error["remedy"]
    assert "leave pair out of the profile" in stage.error["remedy"]
    assert "out of the profile" not in start.error["remedy"]
    assert not site.image.exists()


def test_the_first_error_of_the_log_is_told_with_the_log(stories: Farm) -> None:
    site, done = stories["root-cause"]
    assert done.code == 4, done.text
    assert done.error["found"] == "ValueError: the first error"
    log = Path(done.error["details"]["log"])
    assert log == site.work / "logs" / "aot-round-1.log"
    assert str(log) in done.error["remedy"]
    assert "ValueError: the first error" in log.read_text()
    assert site.state()["stage"] == "warm-up"


def test_a_server_killed_from_outside_is_told_so(stories: Farm) -> None:
    _, done = stories["killed"]
    assert done.code == 4, done.text
    assert done.error["code"] == "server-died"
    assert "before it was ready" in done.error["message"]


def test_a_refused_request_names_its_stage_and_status(stories: Farm) -> None:
    _, done = stories["refused"]
    assert done.code == 4, done.text
    assert done.error["code"] == "server-failed"
    assert "in stage pair" in done.error["message"]
    assert "400" in done.error["found"]


def test_a_stream_that_breaks_off_is_told(stories: Farm) -> None:
    _, done = stories["cut"]
    assert done.code == 4, done.text
    assert "ended before" in done.error["found"]


def test_ready_is_a_completion_and_not_a_health_page(stories: Farm) -> None:
    """O-38: /health answers 200 from the start, completions 503 for two seconds more."""
    site, done = stories["late"]
    assert done.code == 0, done.text
    rounds = json.loads((site.work / "strategies" / "aot" / "tree.json").read_text())["rounds"]
    assert all(r["phases_s"]["ready"] >= 2.5 for r in rounds)


@pytest.mark.parametrize("name", ["key-argument", "key-variable"])
def test_a_server_key_is_sent_and_stored_nowhere(stories: Farm, name: str) -> None:
    """O-39."""
    site, done = stories[name]
    assert done.code == 0, done.text
    assert KEY not in done.text
    holders = [path for path in site.directory.rglob("*") if path.is_file() and not path.is_symlink() and KEY.encode() in path.read_bytes()]
    assert holders == []


def test_an_unknown_key_ends_the_wait_at_once(site: Any, python: str, tmp_path: Path) -> None:
    place = site(LOADS, runtime=copy_runtime(python, tmp_path / "rt"))
    place.faults.write_text(json.dumps({"refuse": {"status": 401}}))
    done = place.build("--json")
    assert done.code == 4, done.text
    assert "401" in done.error["message"]
    assert "VLLM_API_KEY" in done.error["found"] + done.error["remedy"]
