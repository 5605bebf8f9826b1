"""A damaged entry costs that entry and not the kind, where entries stand for themselves: Triton's kernels, DeepGEMM's, modules of ninja."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baker.caches import ALL
from baker.inside import decide
from baker.inside import settings as options
from baker.inside.manifest import ManifestError, parse
from tests.bad import images
from tests.bad.starts import environment, start

KIND = "inductor"
ENTRIES = {path.partition("/")[0] for path in images.files(KIND)}


@pytest.fixture
def image(tmp_path: Path) -> Iterator[images.Image]:
    made = images.make(tmp_path / "image")
    made.kind(KIND)["entry_depth"] = 1
    made.write_manifest()
    made.thaw()
    yield made
    made.thaw()


def of(entries: set[str]) -> list[str]:
    return sorted(path for path in images.files(KIND) if path.partition("/")[0] in entries)


def test_one_damaged_entry_is_left_out_and_the_rest_is_shown(image: images.Image) -> None:
    images.flip(image.pristine(KIND) / of({"a"})[0])
    result = start(image)
    assert result.server, result.stderr
    assert result.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == of(ENTRIES - {"a"})
    assert (result.line["baker"], result.line["hidden"]) == ("partly", {})
    assert result.status["kinds"][KIND]["quarantined"] == ["a"]
    assert "without 1 damaged entries" in result.stderr
    assert "entry-damaged" in result.stderr


def test_strict_refuses_it(image: images.Image) -> None:
    images.flip(image.pristine(KIND) / of({"a"})[0])
    result = start(image, BAKER_POLICY="strict")
    assert (result.code, result.server) == (107, None)


def test_a_damaged_entry_in_every_one_hides_the_kind(image: images.Image) -> None:
    for entry in ENTRIES:
        (image.pristine(KIND) / of({entry})[0]).unlink()
    result = start(image)
    assert result.line["hidden"] == {KIND: ["file-missing"]}


def test_a_file_that_belongs_to_no_entry_hides_the_kind(image: images.Image) -> None:
    (image.pristine(KIND) / "stranger").mkdir()
    (image.pristine(KIND) / "stranger" / "x").write_text("x")
    assert start(image).line["hidden"] == {KIND: ["file-extra"]}


def test_a_second_start_takes_the_links_away_and_leaves_what_the_server_wrote(image: images.Image) -> None:
    first = start(image)
    assert first.server
    assert first.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == of(ENTRIES)
    images.flip(image.pristine(KIND) / of({"a"})[0])
    live = image.root / "live" / KIND / "a"
    second = start(image)
    assert second.server
    assert second.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == of(ENTRIES - {"a"})
    (live / "compiled-again").write_text("by the server")
    third = start(image)
    assert third.server
    assert third.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == sorted([*of(ENTRIES - {"a"}), "a/compiled-again"])


def test_a_link_in_the_entrys_place_is_never_walked_through(image: images.Image, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").symlink_to(image.pristine(KIND) / of({"a"})[0])
    live = image.root / "live" / KIND
    live.mkdir(exist_ok=True)
    (live / "a").symlink_to(outside)
    images.flip(image.pristine(KIND) / of({"a"})[0])
    assert start(image).server
    assert (outside / "kept").is_symlink()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(damaged=st.sets(st.sampled_from(sorted(images.files(KIND)))), lost=st.sets(st.sampled_from(sorted(images.files(KIND)))))
def test_exactly_the_whole_entries_are_shown(damaged: set[str], lost: set[str], image: images.Image) -> None:
    good = images.files(KIND)
    for path, content in good.items():
        place = image.pristine(KIND) / path
        place.unlink(missing_ok=True)
        if path not in lost:
            place.write_bytes(content[::-1] + b"!" if path in damaged else content)
    chosen = options.parse([str(image.root / "start"), "--", *image.argv], {**os.environ, **environment(image), "BAKER_VERIFY": "full"})
    verdict = decide.decide(chosen).verdict
    bad = {path.partition("/")[0] for path in damaged | lost}
    if bad == ENTRIES:
        assert KIND in verdict.hidden
    else:
        assert KIND not in verdict.hidden
        assert verdict.quarantined.get(KIND, frozenset()) == bad


@pytest.mark.parametrize("depth", [-1, "1", None, 1.5, True])
def test_a_depth_that_is_none_is_a_damaged_manifest(depth: object, image: images.Image) -> None:
    image.kind(KIND)["entry_depth"] = depth
    image.write_manifest()
    with pytest.raises(ManifestError, match="entry_depth"):
        parse((image.root / "manifest.json").read_bytes())


def test_kinds_whose_entries_stand_for_themselves() -> None:
    assert {kind.name: kind.depth for kind in ALL if kind.depth} == {
        "deep_gemm": 2,
        "tilelang": 4,
        "torch_extensions": 1,
        "triton": 1,
        "tvm_ffi": 1,
    }
