"""The happy path and what a second command does with what is there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from baker.engines.oci import Oci
from baker.steps.images import open_image
from tests.pipeline.bakes import LOADS, SERVE, Done, Site, run
from tests.pipeline.conftest import Sites

Baked = tuple[Site, Done]


def test_aot_falls_by_its_evidence_and_inductor_proves(baked: Baked) -> None:
    _, done = baked
    assert done.code == 0, done.text
    document = done.document
    (fallen,) = document["fallen"]
    assert fallen["strategy"] == "aot"
    assert all("load failure" in line for line in fallen["evidence"]["refused"])
    assert any(path.endswith("rank_0_0/model") for path in fallen["evidence"]["changed"])
    assert any("/aotautograd/" in path for path in fallen["evidence"]["new"])
    assert (document["strategy"], document["verdict"], document["partial"]) == ("inductor", "proven", [])


def test_the_proof_measures_each_start(baked: Baked) -> None:
    proof = baked[1].document["proof"]
    assert [start["name"] for start in proof["starts"]] == ["bare-1", "bare-2", "bare-3", "recorded"]
    for start in proof["starts"]:
        assert start["verdict"] == "compatible"
        assert [start["files"][what] for what in ("new", "changed", "gone")] == [[], [], []]
        assert start["tokens"]["equal"] == start["tokens"]["prompts"] == 8
        assert any("locks/*.lock" in rule for rule in start["files"]["allowed"])
    assert proof["starts"][3]["event_count"] == 0
    assert proof["cold"]["events"] >= 2
    assert sum(process["torch"] and process["observed"] for process in proof["starts"][3]["processes"]) >= 3


def test_the_image_has_its_tag_record_and_proof(baked: Baked) -> None:
    site, done = baked
    assert done.document["reference"] == f"oci:{site.image}:cpu"
    opened = open_image(Oci(), Oci().read(done.document["reference"]))
    assert opened.image.digest == done.document["digest"]
    assert opened.record["strategy"] == "inductor"
    assert [r["round"] for r in opened.record["rounds"]] == [1, 2]
    assert [f["strategy"] for f in opened.record["fallen"]] == ["aot"]
    assert opened.proofs[-1]["image"] == opened.image.digest
    assert site.state()["stage"] == "done"
    assert {path.name for path in site.root.iterdir()} == {".baker.lock"}


def test_inspect_and_plan_say_what_is_there(baked: Baked) -> None:
    site, done = baked
    shown = run("inspect", "--json", done.document["reference"])
    assert (shown.code, shown.document["verdict"]) == (0, "proven"), shown.text
    assert {kind["name"] for kind in shown.document["sets"][0]["kinds"]} == {"inductor", "vllm"}
    planned = run(*site.arguments("--json", command="plan"))
    assert (planned.code, planned.document["exists"]) == (0, True), planned.text
    assert planned.document["id"] == done.document["plan"]
    assert planned.document["starts"]["most"] == 0


def test_an_unproven_image_says_so_until_the_same_command_proves_it(baked: Baked, tmp_path: Path) -> None:
    site, _ = baked
    logs = {path: path.stat().st_mtime_ns for path in site.work.glob("logs/*round*")}
    output = ("--output", f"oci:{tmp_path / 'unproven'}")
    done = site.build("--json", "--no-prove", *output)
    assert (done.code, done.document["verdict"], done.document["proof"]) == (0, "unproven", None), done.text
    assert "not proven" in done.err
    reference = done.document["reference"]
    shown = run("inspect", reference)
    assert "unproven" in shown.out.split("verdict", 1)[1].splitlines()[0], shown.text
    assert Oci().read(reference).config["config"]["Labels"]["io.baker.unproven"] == "true"
    again = site.build("--json", *output)
    assert again.code == 0, again.text
    assert (again.document["reused"], again.document["digest"], again.document["verdict"]) == (True, done.document["digest"], "proven")
    assert "nothing to bake" in again.err
    assert {path: path.stat().st_mtime_ns for path in site.work.glob("logs/*round*")} == logs
    assert run("inspect", "--json", reference).document["verdict"] == "proven"


def _plan_id(site: Site, *options: str, serve: tuple[str, ...] = SERVE) -> str:
    done = run(*site.arguments("--json", *options, command="plan", serve=serve))
    assert done.code == 0, done.text
    return str(done.document["id"])


def test_plan_id_changes_with_what_decides_the_caches(site: Sites) -> None:
    place = site()
    base = _plan_id(place)
    other = place.directory / "other.yaml"
    other.write_text(place.profile.read_text().replace("output: 4", "output: 5"))
    assert _plan_id(place, "--profile", str(other)) != base
    assert _plan_id(place, serve=(*SERVE, "--block-size", "32")) != base
    assert _plan_id(place, "--root", str(place.directory / "root2")) != base
    assert _plan_id(place, "--served-model", "/mnt/models") != base
    (place.model / "config.json").write_text((place.model / "config.json").read_text().replace('"hidden_size": 64', '"hidden_size": 96'))
    assert _plan_id(place) != base


def test_plan_id_stays_with_what_does_not(site: Sites) -> None:
    place = site()
    base = _plan_id(place)
    assert _plan_id(place, serve=(*SERVE, "--port", "9999", "--host", "0.0.0.0")) == base
    assert _plan_id(place, "--work", str(place.directory / "elsewhere"), "--output", f"oci:{place.directory / 'x'}:tag") == base
    weights = place.model / "model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert _plan_id(place) == base
    weights.write_bytes(data + b"x")
    assert _plan_id(place) != base


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, python: str) -> Baked:
    """A runtime whose AOT artifact loads, and --try-all."""
    place = Site(tmp_path_factory.mktemp("both"), python, LOADS)
    return place, place.child("--json", "--try-all")


def test_try_all_proves_every_strategy_and_ships_the_fastest(both: Baked) -> None:
    site, done = both
    assert done.code == 0, done.text
    speeds = {}
    for name in ("aot", "inductor"):
        proof = json.loads((site.work / "strategies" / name / "proof.json").read_text())
        assert proof["verdict"] == "proven"
        speeds[name] = proof["warm"]["phases_s"]["ready"]
    assert done.document["strategy"] == min(speeds, key=lambda name: speeds[name])
    opened = open_image(Oci(), Oci().read(done.document["reference"]))
    assert opened.proofs[-1]["strategy"] == done.document["strategy"]


def test_a_strategy_that_loads_is_also_proved_with_loading_forced(both: Baked) -> None:
    site, _ = both
    proof = json.loads((site.work / "strategies" / "aot" / "proof.json").read_text())
    assert [start["name"] for start in proof["starts"]][-1] == "fail-hard"


def test_packing_one_tree_twice_gives_the_same_bytes(baked: Baked, tmp_path: Path) -> None:
    """Another work directory, another umask, another image directory; the root is the same, because it is in the plan."""
    site, first = baked
    work = tmp_path / "other" / "work"
    before = os.umask(0o077)
    try:
        shutil.copytree(site.work / "strategies", work / "strategies")
        shutil.copy(site.work / "plan.json", work / "plan.json")
        for path in work.rglob("*"):
            path.chmod(0o700 if path.is_dir() else 0o600)
        done = site.build("--json", "--force", "--work", str(work), "--output", f"oci:{tmp_path / 'again'}")
    finally:
        os.umask(before)
    assert done.code == 0, done.text
    assert "warmed in an earlier run, tree intact" in done.err
    assert "starting the server" not in done.err
    assert done.document["reused"] is False
    one, two = Oci().read(first.document["reference"]), Oci().read(done.document["reference"])
    assert two.digest == one.digest
    assert two.manifest == one.manifest
    assert two.config == one.config
