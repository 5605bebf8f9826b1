"""Several sets in one image: a second build adds to what is there, start picks, neither spoils the other."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from baker.engines.oci import Oci
from baker.pack.unpack import unpack
from baker.pack.validate import validate
from baker.steps.images import open_image
from tests.pipeline.bakes import LOADS, Done, Site, run

SHORT, LONG = ("--max-model-len", "4224"), ("--max-model-len", "2048")


def build(site: Site, name: str, serve: tuple[str, ...], *more: str, output: str = "") -> Done:
    """`baker build --set NAME` into the site's image directory."""
    places = ("--work", str(site.directory / f"work-{name}"), "--output", output or f"oci:{site.image}")
    return site.build("--json", "--set", name, *places, *more, serve=serve)


def layers(reference: str) -> dict[str, str]:
    """`set/kind` -> digest of the kinds' layers."""
    image = Oci().read(reference)
    notes = [(layer["annotations"], layer["digest"]) for layer in image.manifest["layers"]]
    return {f"{n['io.baker.set']}/{n['io.baker.kind']}": digest for n, digest in notes if "io.baker.set" in n}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, python: str) -> tuple[Site, Done, dict[str, str], Done]:
    site = Site(tmp_path_factory.mktemp("sets") / "site", python, LOADS)
    first = build(site, "long", LONG)
    assert first.code == 0, first.text
    before = layers(first.document["reference"])
    second = build(site, "short", SHORT)
    assert second.code == 0, second.text
    return site, first, before, second


Both = tuple[Site, Done, dict[str, str], Done]


def test_one_image_holds_both_and_every_tag_names_it(both: Both) -> None:
    site, first, _, second = both
    digests = {Oci().read(f"oci:{site.image}:{tag}").digest for tag in ("long", "short")}
    assert digests == {second.document["digest"]}
    assert second.document["digest"] != first.document["digest"]
    opened = open_image(Oci(), Oci().read(f"oci:{site.image}:long"))
    assert [cache_set.name for cache_set in opened.manifest.sets] == ["long", "short"]


def test_layers_of_the_first_set_are_the_same_bytes(both: Both) -> None:
    _, _, before, second = both
    after = layers(second.document["reference"])
    assert before
    assert {name: digest for name, digest in after.items() if name.startswith("long/")} == before
    assert any(name.startswith("short/") for name in after)


def test_the_whole_layout_is_sound(both: Both) -> None:
    site = both[0]
    index = json.loads((site.image / "index.json").read_text())
    for entry in index["manifests"]:
        if "artifactType" not in entry:
            assert [finding for finding in validate(site.image, entry) if finding.severity == "hard"] == []


def test_inspect_tells_which_set_is_proven_where(both: Both) -> None:
    _, first, _, second = both
    shown = run("inspect", "--json", second.document["reference"]).document
    verdicts = {entry["name"]: entry["verdict"] for entry in shown["sets"]}
    assert verdicts["short"] == "proven"
    assert verdicts["long"] == f"proven in {first.document['digest']}, layers unchanged"
    assert shown["verdict"] == "mixed"


@pytest.mark.parametrize(("serve", "picked"), [(LONG, "long"), (SHORT, "short")])
def test_start_picks_the_set_by_its_arguments(both: Both, serve: tuple[str, ...], picked: str, tmp_path: Path) -> None:
    site, _, _, second = both
    opened = open_image(Oci(), Oci().read(second.document["reference"]))
    shutil.rmtree(site.root, ignore_errors=True)
    unpack(opened.layer_paths, str(site.root))
    try:
        cache_set = next(s for s in opened.manifest.sets if s.name == picked)
        command = [*cache_set.serve["program"], *cache_set.serve["argv"]]
        checked = subprocess.run(
            [site.python, "-I", "-S", f"{site.root}/start", "--check", "--", *command],
            env={**opened.env, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        document: dict[str, Any] = json.loads(checked.stdout)
        assert document["set"] == picked
        assert checked.returncode == 0, checked.stdout
    finally:
        shutil.rmtree(site.root)


def test_either_set_can_be_proven_again(both: Both) -> None:
    _, _, _, second = both
    again = run("prove", "--json", "--set", "long", second.document["reference"])
    assert again.code == 0, again.text
    assert again.document["verdict"] == "proven"
    shown = run("inspect", "--json", second.document["reference"]).document
    assert {entry["verdict"] for entry in shown["sets"]} == {"proven"}
    missing = run("prove", "--json", "--set", "shrot", second.document["reference"])
    assert (missing.code, missing.error["code"]) == (2, "no-such-set")


def test_a_set_that_is_there_is_not_baked_again(both: Both) -> None:
    site = both[0]
    again = build(site, "short", SHORT, "--no-prove")
    assert again.code == 0, again.text
    assert again.document["reused"] is True


def test_the_same_set_with_other_arguments_is_replaced(both: Both) -> None:
    site = both[0]
    done = build(site, "short", ("--max-model-len", "1024"), "--no-prove")
    assert done.code == 0, done.text
    opened = open_image(Oci(), Oci().read(done.document["reference"]))
    assert [cache_set.name for cache_set in opened.manifest.sets] == ["long", "short"]
    assert "1024" in opened.manifest.sets[1].serve["argv"]


def test_sets_that_need_different_environments_are_refused_and_nothing_is_lost(both: Both) -> None:
    site = both[0]
    before = Oci().read(f"oci:{site.image}:long").digest
    profile = site.directory / "other.yaml"
    profile.write_text(site.profile.read_text().replace("env: {", 'env: {VLLM_LOOPBACK_IP: "127.0.0.1", '))
    done = build(site, "third", SHORT, "--no-prove", "--profile", str(profile))
    assert (done.code, done.error["code"]) == (2, "set-conflict")
    assert "VLLM_LOOPBACK_IP" in done.error["message"]
    assert Oci().read(f"oci:{site.image}:long").digest == before


def test_a_damaged_first_image_is_said_and_left(both: Both, tmp_path: Path) -> None:
    site = both[0]
    copy = tmp_path / "copy"
    shutil.copytree(site.image, copy)
    image = Oci().read(f"oci:{copy}:long")
    (copy / "blobs" / "sha256" / image.manifest["layers"][0]["digest"][7:]).unlink()
    done = build(site, "fourth", SHORT, "--no-prove", output=f"oci:{copy}:long")
    assert (done.code, done.error["code"]) == (5, "blob-missing")
    assert "--force" in done.error["remedy"]


def _damaged(both: Both, tmp_path: Path, what: str) -> str:
    """A copy of the two-set layout with one blob damaged: config, manifest, layer, or its index gone."""
    site, _, _, second = both
    shutil.copytree(site.image, tmp_path / "image")
    image = Oci().read(second.document["reference"])
    blobs = tmp_path / "image" / "blobs" / "sha256"
    names = {"config": image.manifest["config"]["digest"], "manifest": image.digest, "layer": image.manifest["layers"][0]["digest"]}
    if what == "index":
        (tmp_path / "image" / "index.json").unlink()
    else:
        path = blobs / names[what].removeprefix("sha256:")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.unlink()
        path.write_bytes(bytes(data))
    return f"oci:{tmp_path / 'image'}"


@pytest.mark.parametrize("what", ["config", "manifest", "layer", "index"])
def test_a_damaged_image_at_the_destination_is_never_taken_for_none(what: str, both: Both, tmp_path: Path) -> None:
    site = both[0]
    output = _damaged(both, tmp_path, what) + ":long"
    before = sorted(path.name for path in (tmp_path / "image").rglob("*"))
    done = build(site, "third", ("--max-model-len", "1024"), "--no-prove", output=output)
    assert done.code == 5, done.text
    assert "damaged" in done.error["message"]
    assert "--force" in done.error["remedy"]
    assert sorted(path.name for path in (tmp_path / "image").rglob("*")) == before  # told before anything was warmed or written


def test_a_set_that_start_could_not_tell_apart_is_refused_before_the_warm_up(both: Both) -> None:
    site = both[0]
    done = build(site, "twin", LONG)
    assert (done.code, done.error["code"]) == (2, "set-shadowed"), done.text
    assert "long" in done.error["message"]
