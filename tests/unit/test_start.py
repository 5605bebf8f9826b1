"""What `start` finds in an image, damaged by name or differing from the bake, and what the server then sees."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from baker.inside import decide, settings
from baker.pack.zips import start_zip
from tests.bad import images
from tests.bad.starts import start


@pytest.fixture
def image(tmp_path: Path) -> Iterator[images.Image]:
    made = images.make(tmp_path / "image", zip_data=start_zip())
    yield made
    made.thaw()


def test_a_good_image_is_shown_whole_and_the_server_takes_over_the_process(image: images.Image) -> None:
    (image.root.parent / "json.py").write_text("raise SystemExit(99)\n")  # in the working directory: must not be imported
    result = start(image, shipped=True)
    assert result.server, result.stderr
    assert result.code == 0
    assert result.server["argv"] == ["--model", "tiny", "--max-model-len", "4096"]
    assert result.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == sorted(images.files("inductor"))
    assert (result.line["baker"], result.line["shown"], result.line["hidden"]) == ("compatible", ["vllm", "inductor"], {})
    assert "warm" not in result.stderr, "start says compatible; only a measurement says warm"
    assert result.status["manifest"] == image.environ["BAKER_MANIFEST_DIGEST"]
    assert result.status["kinds"]["vllm"]["files"] == 8


@pytest.mark.parametrize("damage", images.OF_A_KIND, ids=lambda f: f.__name__)
def test_damage_to_a_kind_is_named_and_hides_that_kind_only(image: images.Image, damage: Callable[[images.Image], tuple[str, str]]) -> None:
    image.thaw()
    code, name = damage(image)
    strict = start(image, BAKER_POLICY="strict")
    assert (strict.code, strict.server) == (107, None)
    assert list((image.root / "live" / "vllm").iterdir()) == [], "strict fills nothing"
    reason = (image.root.parent / "termination-log").read_text()
    auto = start(image)
    assert auto.server, auto.stderr
    assert auto.code == 0
    assert auto.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == []
    assert auto.server["files"]["VLLM_CACHE_ROOT"] == sorted(images.files("vllm"))
    assert (auto.line["baker"], auto.line["shown"], auto.line["hidden"]) == ("partly", ["vllm"], {"inductor": [code]})
    for text in (auto.stderr, strict.stderr, reason):
        assert any(line for line in text.splitlines() if f"inductor {code}" in line and name in line), text


@pytest.mark.parametrize("damage", images.OF_THE_IMAGE, ids=lambda f: f.__name__)
def test_damage_to_the_image_hides_every_kind(image: images.Image, damage: Callable[[images.Image], tuple[str, str]]) -> None:
    start(image)  # live is full from a start before the damage
    code, name = damage(image)
    strict = start(image, BAKER_POLICY="strict")
    assert (strict.code, strict.server) == (107, None)
    auto = start(image)
    assert auto.server, auto.stderr
    assert auto.code == 0
    assert auto.server["files"] == {"VLLM_CACHE_ROOT": [], "TORCHINDUCTOR_CACHE_DIR": []}
    assert auto.line["baker"] == "cold"
    assert "COLD" in auto.stderr
    for text in (auto.stderr, strict.stderr, (image.root.parent / "termination-log").read_text()):
        assert any(line for line in text.splitlines() if code in line and name in line), text


def found(image: images.Image, level: str) -> set[str]:
    """Paths that a check at `level` names in kind inductor."""
    chosen = settings.parse([str(image.root / "start"), "--check"], {**image.environ, "BAKER_VERIFY": level})
    return {damage.path for damage in decide.decide(chosen).verdict.damage.get("inductor", ())}


def test_a_flipped_byte_is_found_in_every_file_at_full_and_in_all_but_inert_ones_at_code(image: images.Image) -> None:
    image.thaw()
    paths = set(images.files("inductor"))
    inert = {path for path in paths if path.endswith(".cpp")}
    for path in sorted(paths):
        images.flip(image.pristine("inductor") / path, len(path))
        assert found(image, "full") == {path}
        assert found(image, "code") == ({path} - inert)
        images.flip(image.pristine("inductor") / path, len(path))
    for path in paths:
        images.flip(image.pristine("inductor") / path)
    assert found(image, "full") == paths
    assert found(image, "code") == paths - inert
    assert inert
    assert found(image, "sizes") == set()


def test_the_status_file_lists_every_damaged_path(image: images.Image) -> None:
    image.thaw()
    for i in range(30):
        (image.pristine("vllm") / f"extra{i}").write_text("x")
    result = start(image)
    assert len(result.status["kinds"]["vllm"]["damage"]) == 30
    assert "22 more paths differ" in result.stderr


def test_a_flag_that_differs_is_said_before_the_server_runs(image: images.Image) -> None:
    """O-04."""
    result = start(image, *image.argv[:-1], "1024", "--port", "1", "--seed", "7")
    assert result.server is not None
    assert result.server["files"]["VLLM_CACHE_ROOT"] == []
    assert result.line["baker"] == "cold"
    assert result.line["hidden"] == {"vllm": ["argument-differs"], "inductor": ["argument-differs"]}
    assert "--max-model-len differs from the bake (got 1024, expected 4096): serve with --max-model-len 4096" in result.stderr
    assert "soft image argument-differs: --seed differs, neutral (got 7, expected absent)" in result.stderr
    assert "--port" not in result.stderr


def test_variables_are_compared_and_secrets_never_shown(image: images.Image) -> None:
    """O-02, O-53."""
    result = start(
        image, *image.argv, "--api-key", "sk-TESTSECRET", "--hf-token", "hf_TESTSECRET", VLLM_API_KEY="TESTSECRET", VLLM_LOOPBACK_IP="10.0.0.7"
    )
    assert "VLLM_LOOPBACK_IP differs from the bake (got 10.0.0.7, expected unset)" in result.stderr
    assert "VLLM_API_KEY differs" in result.stderr
    assert "--hf-token differs" in result.stderr
    assert "TESTSECRET" not in result.stderr + json.dumps(result.status)
    assert result.line["baker"] == "cold"


def test_versions_are_those_of_the_server_s_distributions(image: images.Image) -> None:
    """The start interpreter sees no site-packages: the versions come from the directories that the bake recorded."""
    site = image.root.parent / "site"
    (site / "torch-2.13.0.dist-info").mkdir(parents=True)
    metadata = site / "torch-2.13.0.dist-info" / "METADATA"
    metadata.write_text("Name: torch\nVersion: 2.13.0\n")
    image.document["sets"][0]["serve"]["dist_info"] = [str(site)]
    image.kind("vllm")["rows"].append(images.row("pkg.torch", "eq", "2.13.0"))
    image.kind("inductor")["rows"].append(images.row("python.abi", "prefix", "cpython-"))
    image.write_manifest()
    assert start(image, shipped=True).line["baker"] == "compatible"
    metadata.write_text("Name: torch\nVersion: 2.14.0\n")
    result = start(image, shipped=True)
    assert result.line["hidden"] == {"vllm": ["fact-differs"]}
    assert "hard vllm fact-differs: pkg.torch does not fit (test) (got 2.14.0, expected 2.13.0): bake here" in result.stderr
    shutil.rmtree(site)
    assert "hard vllm unknown-fact: pkg.torch cannot be told here (got none of the dist-info directories can be read" in start(image).stderr
