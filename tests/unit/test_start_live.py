"""Where the server writes: foreign live directories, another root, HOME, a second start, variables of the pod."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from baker.pack.zips import start_zip
from tests.bad import images
from tests.bad.starts import start


@pytest.fixture
def image(tmp_path: Path) -> Iterator[images.Image]:
    made = images.make(tmp_path / "image", zip_data=start_zip())
    yield made
    made.thaw()


def test_a_foreign_live_is_left_alone_and_the_variables_move(image: images.Image) -> None:
    """O-09, second part: a volume with somebody's files where live is."""
    image.kind("vllm")["path_bound"] = True
    image.write_manifest()
    (image.root / "live" / "old").write_text("mine")
    result = start(image)
    assert result.server is not None
    private = result.line["live"]
    assert private.startswith(str(image.root.parent / "tmp" / "baker-live-"))
    assert result.server["roots"] == {"VLLM_CACHE_ROOT": f"{private}/vllm", "TORCHINDUCTOR_CACHE_DIR": f"{private}/inductor"}
    assert result.server["files"] == {"VLLM_CACHE_ROOT": [], "TORCHINDUCTOR_CACHE_DIR": sorted(images.files("inductor"))}
    assert result.line["hidden"] == {"vllm": ["path-bound"]}
    assert "live-private" in result.stderr
    assert (image.root / "live" / "old").read_text() == "mine"
    assert not (image.root / "live" / ".baker.json").exists()
    assert start(image, BAKER_POLICY="strict").code == 107


def test_an_image_at_another_root_works_but_for_path_bound_kinds(image: images.Image) -> None:
    image.kind("vllm")["path_bound"] = True
    image.write_manifest()
    image.thaw()
    image.root = image.root.rename(image.root.parent / "moved")
    result = start(image)
    assert result.server is not None
    assert result.line["hidden"] == {"vllm": ["path-bound"]}
    assert "root-moved" in result.stderr
    assert result.server["roots"]["TORCHINDUCTOR_CACHE_DIR"] == str(image.root / "live" / "inductor")
    assert result.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == sorted(images.files("inductor"))


def test_variables_of_the_pod_win_and_are_said(image: images.Image) -> None:
    result = start(image, TORCHINDUCTOR_CACHE_DIR=str(image.root.parent / "tmp"), VLLM_CACHE_ROOT="(unset)")
    assert result.server is not None
    assert result.server["roots"]["TORCHINDUCTOR_CACHE_DIR"] == str(image.root.parent / "tmp")
    assert result.server["files"]["VLLM_CACHE_ROOT"] == sorted(images.files("vllm")), "a pin that the pod lost is set again"
    assert (result.line["baker"], result.line["elsewhere"]) == ("partly", ["inductor"])
    assert "variable-elsewhere" in result.stderr


@pytest.mark.parametrize("home", ["(unset)", "/", "/nonexistent/home", "relative"])
def test_a_home_that_cannot_be_written_is_replaced(image: images.Image, home: str) -> None:
    result = start(image, HOME=home)
    assert result.server is not None
    assert result.server["home"].startswith(str(image.root.parent / "tmp" / "baker-home-"))
    assert "soft image home-set" in result.stderr
    assert result.line["baker"] == "compatible"


def test_a_second_start_finds_its_own_live_and_hides_what_no_longer_fits(image: images.Image) -> None:
    assert start(image).line["baker"] == "compatible"
    assert start(image).line["live"] == str(image.root / "live")
    image.thaw()
    images.missing_file(image)
    result = start(image)
    assert result.server is not None
    assert result.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == []
    assert "live-set-aside" in result.stderr
