"""What is refused before anything is started: nothing is deleted, and the message says what to do."""

from __future__ import annotations

import io
import json
import tarfile
import time
import venv
from pathlib import Path

import pytest

from baker.engines.oci import Oci
from baker.executors.lock import LOCK, claim
from baker.pack import oci
from baker.pack.layout import Layout
from baker.steps.images import open_image
from tests.pipeline.bakes import LOADS, until
from tests.pipeline.conftest import Sites


def test_a_root_in_use_names_its_holder(site: Sites) -> None:
    first, second = site({**LOADS, "unavailable_s": 60}, name="one"), site(LOADS, name="two")
    process = first.spawn("--json")
    try:
        until(lambda: first.state().get("stage") == "warm-up", process)
        root = second.build("--json", "--root", str(first.root))
        work = second.build("--json", "--work", str(first.work))
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert (root.code, root.error["code"]) == (3, "root-in-use"), root.text
    assert str(process.pid) in root.error["found"]
    assert (work.code, work.error["code"]) == (3, "work-in-use"), work.text
    assert str(process.pid) in work.error["found"]
    assert process.returncode == 143


def test_foreign_content_of_the_root_stays(site: Sites) -> None:
    place = site()
    place.root.mkdir()
    (place.root / "thesis.tex").write_text("years of work")
    done = place.build("--json")
    assert (done.code, done.error["code"]) == (3, "root-foreign"), done.text
    assert "thesis.tex" in done.error["found"]
    assert "--root" in done.error["remedy"]
    assert (place.root / "thesis.tex").read_text() == "years of work"


def test_no_gpu_is_told_within_two_seconds(site: Sites) -> None:
    place = site()
    began = time.monotonic()
    done = place.child("--json", "--arch", "sm_90")
    seconds = time.monotonic() - began
    assert (done.code, done.error["code"]) == (3, "no-gpu"), done.text
    assert "libcuda.so.1" in done.error["expected"]
    assert "sm_90" in done.error["message"]
    assert seconds < 2
    assert not place.work.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--arch", "sm90"), "did you mean sm_90?"),
        (("--profile", "defualt"), "did you mean default"),
        (("--compresion", "zstd"), "did you mean --compression"),
        (("--weights", "dumy"), "did you mean dummy?"),
        (("--root", "relative"), "absolute"),
        (("--gpu", "NVIDIA H200"), "drop one of the two"),
    ],
)
def test_wrong_usage_exits_2_with_a_hint(site: Sites, options: tuple[str, ...], words: str) -> None:
    place = site()
    done = place.build("--json", *options)
    assert done.code == 2, done.text
    assert words in done.error["remedy"], done.text
    assert not place.work.exists()


def test_a_model_directory_that_is_none_is_told(site: Sites) -> None:
    place = site()
    gone = place.build("--json", "--model", str(place.directory / "missing"))
    assert gone.code in (2, 4), gone.text
    assert "missing" in gone.text
    (place.model / "config.json").unlink()
    empty = place.build("--json")
    assert empty.code in (2, 4), empty.text
    assert "config.json" in empty.text
    assert not place.work.exists()


def test_an_argument_that_baker_owns_is_refused(site: Sites) -> None:
    done = site().build("--json", serve=("--model", "other"))
    assert done.code == 2, done.text
    assert "--model" in done.error["message"]


def test_a_python_without_the_runtime_is_told(site: Sites, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    done = site().build("--json", "--python", str(tmp_path / "bare" / "bin" / "python"))
    assert (done.code, done.error["code"]) == (3, "no-runtime"), done.text
    assert "--python" in done.error["remedy"]


def test_a_work_directory_of_another_plan_is_set_aside_and_comes_back(site: Sites, tmp_path: Path) -> None:
    """O-17: nothing of another plan is ever taken for this one's, and nothing is deleted."""
    place = site(LOADS)
    first = place.build("--json", "--no-prove")
    assert first.code == 0, first.text
    place.profile.write_text(place.profile.read_text().replace("output: 4", "output: 3"))
    second = place.build("--json", "--no-prove")
    assert second.code == 0, second.text
    assert "the work directory held another plan (profile): set aside as" in second.err
    assert "round 1: starting the server" in second.err
    assert second.document["plan"] != first.document["plan"]
    (aside,) = (place.work / "others").iterdir()
    assert (aside / "aot" / "tree.json").exists()
    place.profile.write_text(place.profile.read_text().replace("output: 3", "output: 4"))
    third = place.build("--json", "--no-prove", "--output", f"oci:{tmp_path / 'third'}")
    assert third.code == 0, third.text
    assert "tree intact" in third.err
    assert third.document["digest"] == first.document["digest"]


LAYER = "application/vnd.oci.image.layer.v1.tar"


def _base(directory: Path) -> Path:
    """A one-layer base image with its own environment, user and labels."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        info = tarfile.TarInfo("etc/base-release")
        info.size = 4
        tar.addfile(info, io.BytesIO(b"base"))
    layer = data.getvalue()
    config = oci.encode(
        {
            "architecture": oci.architecture(),
            "os": "linux",
            "config": {"Env": ["PATH=/usr/bin:/bin", "BASE_SAYS=hello"], "User": "1000", "WorkingDir": "/srv", "Labels": {"base.label": "kept"}},
            "rootfs": {"type": "layers", "diff_ids": [oci.descriptor(LAYER, layer)["digest"]]},
            "history": [{"created_by": "base"}],
        }
    )
    manifest = oci.encode(oci.image_manifest(config, [oci.descriptor(LAYER, layer)], (), {}))
    layout = Layout.create(directory)
    with layout.locked():
        for blob in (layer, config, manifest):
            layout.put(blob)
        layout.tag(oci.descriptor(oci.MANIFEST, manifest), "v1")
    return directory


def test_a_base_keeps_its_layers_and_config(site: Sites, tmp_path: Path) -> None:
    place = site(LOADS)
    base = _base(tmp_path / "base")
    done = place.build("--json", "--no-prove", "--base", f"oci:{base}:v1")
    assert done.code == 0, done.text
    image, below = Oci().read(done.document["reference"]), Oci().read(f"oci:{base}:v1")
    assert image.manifest["layers"][0]["digest"] == below.manifest["layers"][0]["digest"]
    assert [row["kind"] for row in done.document["layers"]] == ["base", "vllm", "start", "manifest"]
    config = image.config["config"]
    assert "BASE_SAYS=hello" in config["Env"]
    assert (config["User"], config["WorkingDir"], config["Labels"]["base.label"]) == ("1000", "/srv", "kept")
    assert open_image(Oci(), image).manifest.plan["base"] == below.digest
    missing = place.build("--json", "--base", f"oci:{tmp_path / 'nowhere'}")
    assert missing.code in (2, 5), missing.text
    assert "nowhere" in missing.text


def test_a_killed_build_s_temporary_directory_goes_with_the_next_claim(tmp_path: Path) -> None:
    ours, foreign = tmp_path / "baker-abc", tmp_path / "other"
    for directory in (ours, foreign):
        (directory / "home-1").mkdir(parents=True)
    for directory in (ours, foreign):
        root = tmp_path / f"root-{directory.name}"
        root.mkdir()
        (root / LOCK).write_text(json.dumps({"pid": 1, "temporary": str(directory)}))
        with claim(root):
            pass
    assert not ours.exists()
    assert foreign.exists()
