"""Images that nobody vouches for: `inspect` and `prove` name what is wrong with them, and nothing of them is believed or written outside."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.bakes import Site, run

Edit = Callable[[dict[str, Any]], object]
PROOF, RECORD = "application/vnd.baker.proof.v1+json", "application/vnd.baker.bake.v1+json"


class Forged:
    """A copy of a layout whose documents are edited, each under its right digest."""

    def __init__(self, image: Path, directory: Path) -> None:
        shutil.copytree(image, directory)
        self.directory, self.reference = directory, f"oci:{directory}:cpu"
        self.index = json.loads((directory / "index.json").read_text())
        self.entry = next(entry for entry in self.index["manifests"] if "artifactType" not in entry)
        self.manifest = self.read(self.entry["digest"])
        self.config = self.read(self.manifest["config"]["digest"])

    def read(self, digest: str) -> Any:
        """A document by its digest."""
        return json.loads((self.directory / "blobs" / "sha256" / digest.removeprefix("sha256:")).read_bytes())

    def put(self, data: bytes) -> dict[str, Any]:
        """Store bytes; their digest and size."""
        name = hashlib.sha256(data).hexdigest()
        (self.directory / "blobs" / "sha256" / name).write_bytes(data)
        return {"digest": f"sha256:{name}", "size": len(data)}

    def save(self) -> str:
        """Write config, manifest and index; the reference."""
        if isinstance(self.manifest.get("config"), dict) and "digest" in self.manifest["config"]:
            self.manifest["config"].update(self.put(json.dumps(self.config).encode()))
        self.entry.update(self.put(json.dumps(self.manifest).encode()))
        (self.directory / "index.json").write_text(json.dumps(self.index))
        return self.reference

    def attach(self, kind: str, data: bytes) -> None:
        """List a referrer of the image, the last one of its kind."""
        self.save()  # the image is then what the subject says
        subject = {name: self.entry[name] for name in ("mediaType", "digest", "size")}
        layer = {"mediaType": kind, **self.put(data)}
        document = {"schemaVersion": 2, "artifactType": kind, "config": self.put(b"{}"), "layers": [layer], "subject": subject}
        self.index["manifests"].append({"mediaType": self.entry["mediaType"], "artifactType": kind, **self.put(json.dumps(document).encode())})
        (self.directory / "index.json").write_text(json.dumps(self.index))


@pytest.fixture
def forged(baked: Site, tmp_path: Path) -> Forged:
    """An image to spoil."""
    return Forged(baked.image, tmp_path / "image")


CONFIGS: dict[str, Edit] = {
    "config is text": lambda c: c.update(config="x"),
    "Env is a number": lambda c: c["config"].update(Env=5),
    "Env holds numbers": lambda c: c["config"].update(Env=[5, None]),
    "Labels is a list": lambda c: c["config"].update(Labels=[1]),
    "rootfs is a number": lambda c: c.update(rootfs=5),
    "diff_ids is an object": lambda c: c["rootfs"].update(diff_ids={"a": 1}),
    "history holds a number": lambda c: c.update(history=[5]),
}
MANIFESTS: dict[str, Edit] = {
    "layers is a number": lambda m: m.update(layers=5),
    "a layer is a number": lambda m: m.update(layers=[5]),
    "config is empty": lambda m: m.update(config={}),
    "annotations are a list": lambda m: m["layers"][0].update(annotations=[1]),
    "a size is text": lambda m: m["layers"][0].update(size="1"),
    "a digest names a path": lambda m: m["layers"][0].update(digest="sha256:../../../../etc/passwd"),
}


@pytest.mark.parametrize("edit", CONFIGS.values(), ids=CONFIGS)
def test_a_config_of_other_types(forged: Forged, edit: Edit, tmp_path: Path) -> None:
    edit(forged.config)
    reference = forged.save()
    for words in (("inspect", "--json", reference), ("prove", "--json", reference, "--work", str(tmp_path / "work"))):
        done = run(*words)
        assert (done.code, done.error["code"]) == (5, "document-malformed"), done.text
        assert done.error["found"].startswith("$."), done.text


@pytest.mark.parametrize("edit", MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_of_other_types(forged: Forged, edit: Edit) -> None:
    edit(forged.manifest)
    done = run("inspect", "--json", forged.save())
    assert done.code == 5, done.text
    assert done.error["code"] in ("document-malformed", "not-an-image", "bad-digest"), done.text


@pytest.mark.parametrize("kind", [PROOF, RECORD])
@pytest.mark.parametrize("data", [b"5", b"[]", b"[" * 100_000, b'{"verdict": 5, "rounds": 5}', b'{"fallen": [5], "starts": 5}'])
def test_a_referrer_of_other_types(forged: Forged, kind: str, data: bytes) -> None:
    forged.attach(kind, data)
    done = run("inspect", "--json", forged.reference)
    assert done.code == 5, done.text
    assert done.error["code"] in ("document-malformed", "referrer-damaged"), done.text


def test_the_proof_of_another_image_proves_nothing(forged: Forged) -> None:
    forged.save()
    proof = {"verdict": "proven", "starts": [], "cold": {"n": 1, "phases_s": {}, "stages": {}}, "warm": {"n": 3, "phases_s": {}}}
    for digest, verdict in (("sha256:" + "0" * 64, "unproven"), (forged.entry["digest"], "proven")):
        forged.attach(PROOF, json.dumps({**proof, "image": digest}).encode())
        done = run("inspect", "--json", forged.reference)
        assert (done.code, done.document["verdict"]) == (0, verdict), done.text


def test_a_model_that_was_named_and_is_not_there(baked: Site, tmp_path: Path) -> None:
    for name in ("/nonexistent", "/" + "x" * 5000):
        done = run("prove", "--json", f"oci:{baked.image}:cpu", "--model", name, "--work", str(tmp_path / "work"))
        assert (done.code, done.error["code"]) == (2, "model-dir-missing"), done.text
