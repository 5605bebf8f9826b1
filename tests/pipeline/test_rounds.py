"""Rounds to the fixpoint, and what fells a strategy, an artifact or the whole bake."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from baker.engines.oci import Oci
from baker.steps.images import open_image
from tests.pipeline.bakes import LOADS, Done, Farm, Site, copy_runtime, finish, until
from tests.sim.install import make_runtime

Story = tuple[Site, Done]
# Name -> script of faults. Paths are below Inductor's directory.
SCRIPTS: dict[str, dict[str, Any]] = {
    "two-starts": {"paths": ["aa/first.py", "bb/second.py"]},
    "never": {"new_file": True},
    "short": {"usage_off": 1, "usage_only": 24},
}


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory, python: str) -> Iterator[Farm]:
    def build(name: str, script: dict[str, Any], runtime: str, *options: str) -> Story:
        place = Site(tmp_path_factory.mktemp(name), runtime, script)
        return place, place.child("--json", *options)

    def zero() -> tuple[Site, Done, Done]:
        place, refused = build("zero", {"zero_rank": True}, python)
        return place, refused, place.child("--json", "--allow-partial")

    home = tmp_path_factory.mktemp("bare")
    home.chmod(0o755)
    bare = make_runtime(home / "rt", bytecode=False)
    scenarios: dict[str, Callable[[], Any]] = {name: (lambda name=name: build(name, SCRIPTS[name], python)) for name in ("never", "short")}
    scenarios["two-starts"] = lambda: build("two-starts", SCRIPTS["two-starts"], python, "--no-prove")
    scenarios["zero"] = zero
    scenarios["bytecode"] = lambda: build("bytecode", LOADS, bare)
    farm = Farm(scenarios, workers=6)
    yield farm
    farm.close()


def _record(done: Done) -> Any:
    return open_image(Oci(), Oci().read(done.document["reference"])).record


def test_files_of_the_second_start_are_baked_too(stories: Farm) -> None:
    """O-06: start 1 and 2 write, start 3 does not: the fixpoint is round 3."""
    _, done = stories["two-starts"]
    assert done.code == 0, done.text
    assert [len(r["files"]["new"]) > 0 for r in _record(done)["rounds"]] == [True, True, False]
    manifest = open_image(Oci(), Oci().read(done.document["reference"])).manifest
    paths = {entry.path for kind in manifest.sets[0].kinds for entry in kind.files}
    assert {"aa/first.py", "bb/second.py"} <= paths


def test_a_cache_that_never_settles_fells_every_strategy_with_its_paths(stories: Farm) -> None:
    site, done = stories["never"]
    assert done.code == 5, done.text
    assert done.error["code"] == "no-strategy"
    assert "aot: rounds 2 and 3: each start refused" in done.error["found"]
    assert "inductor: no fixpoint after 4 rounds" in done.error["found"]
    fallen = {f["strategy"]: f for f in done.error["details"]["fallen"]}
    grown = fallen["inductor"]["evidence"]["last"]
    assert len(grown) == 1
    assert grown[0].startswith("live/inductor/")
    assert grown[0].endswith(".py")
    assert not site.image.exists()
    assert json.loads((site.work / "strategies" / "inductor" / "fallen-last.json").read_text())["reason"] in done.error["found"]


def test_an_empty_file_stops_the_bake_and_is_named(stories: Farm) -> None:
    """O-11."""
    site, done, _ = stories["zero"]
    assert done.code == 5, done.text
    assert "rank_3_0/model is empty" in done.error["message"]
    assert "0 bytes" in done.error["message"]
    assert "--allow-partial" in done.error["remedy"]
    assert (site.work / "strategies" / "inductor" / "tree.json").exists()


def test_allow_partial_leaves_the_empty_file_out_and_says_so(stories: Farm) -> None:
    site, _, done = stories["zero"]
    assert done.code == 5, done.text
    assert "tree intact" in done.err
    (left_out,) = done.document["partial"]
    assert left_out.startswith("vllm: left out ")
    assert left_out.endswith("rank_3_0/model")
    opened = open_image(Oci(), Oci().read(done.document["reference"]))
    assert not [entry.path for kind in opened.manifest.sets[0].kinds for entry in kind.files if "rank_3_0" in entry.path]
    assert any(drop["path"].endswith("rank_3_0/model") for drop in opened.record["dropped"]["vllm"])
    assert opened.proofs[-1]["verdict"] == "proven"
    assert any(f["code"] == "files-left-out" for f in opened.proofs[-1]["findings"])
    again = site.build("--json", "--no-prove")
    assert (again.code, again.document["reused"], again.document["partial"]) == (5, True, done.document["partial"]), again.text


def test_a_request_of_another_length_is_not_counted_and_said(stories: Farm) -> None:
    """O-41: usage of one stage shows another number of tokens than was asked for."""
    site, done = stories["short"]
    assert done.code == 5, done.text
    assert "aot: round 1: not counted: pair[0]: usage.completion_tokens: found 5, expected 4" in done.err
    assert "inductor: the proof failed: bare-1: requests did not have their lengths: pair: usage.completion_tokens" in done.error["found"]
    assert json.loads((site.work / "strategies" / "inductor" / "proof.json").read_text())["verdict"] == "failed"
    assert not site.image.exists()


def test_missing_byte_code_is_baked_and_proves(stories: Farm) -> None:
    _, done = stories["bytecode"]
    assert done.code == 0, done.text
    assert "kind bytecode is baked" in done.err
    manifest = open_image(Oci(), Oci().read(done.document["reference"])).manifest
    kinds = {kind.name: kind for kind in manifest.sets[0].kinds}
    assert len(kinds["bytecode"].files) > 10
    assert kinds["bytecode"].variables == {"PYTHONPYCACHEPREFIX": f"{manifest.root}/live/bytecode"}
    assert [len(r["files"]["new"]) > 0 for r in _record(done)["rounds"]] == [True, True, False]


def test_byte_code_that_the_base_has_is_not_baked(baked: Story) -> None:
    manifest = open_image(Oci(), Oci().read(baked[1].document["reference"])).manifest
    assert "bytecode" not in {kind.name for kind in manifest.sets[0].kinds}


def test_a_kind_that_stays_empty_says_where_files_appeared(python: str, tmp_path: Path) -> None:
    """O-05: the server ignores the variable of one kind and fills another kind's directory."""
    place = Site(tmp_path / "site", copy_runtime(python, tmp_path / "rt"), LOADS)
    compiler = place.faults.with_name("compiler.py")
    compiler.write_text(compiler.read_text() + '\n\ndef vllm_root():\n    return Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) / "moved"\n')
    registry = next(place.faults.parents[1].glob("model_executor/models/registry.py"))
    registry.write_text("def inspect(architecture):\n    pass\n")
    done = place.build("--json", "--no-prove")
    assert (done.code, done.error["code"]) == (5, "kind-empty"), done.text
    assert "kind vllm came out empty" in done.error["message"]
    assert "live/inductor/moved/" in done.error["found"]
    assert not place.image.exists()


def test_a_damaged_tree_of_whole_rounds_starts_again_from_nothing(python: str, tmp_path: Path) -> None:
    place = Site(tmp_path / "site", copy_runtime(python, tmp_path / "rt"), LOADS)
    process = place.spawn("--json", "--no-prove")
    try:
        until(lambda: place.state().get("round") == 2, process)
        place.faults.write_text(json.dumps({"die": {"when": "request", "at": 2, "first": "RuntimeError: scripted"}}))
    finally:
        done = finish(process)
    assert done.code == 4, done.text
    partial = place.work / "strategies" / "aot" / "partial"
    (artifact,) = partial.rglob("rank_0_0/model")
    artifact.write_bytes(artifact.read_bytes()[:-1] + b"X")
    place.faults.unlink()
    again = place.build("--json", "--no-prove")
    assert again.code == 0, again.text
    assert "going on after" not in again.err
    assert "round 1: starting the server" in again.err
    assert not partial.exists()
