"""Whatever the manifest's bytes and the tree are: no foreign exception, and no kind is shown that is not byte for byte what its manifest says."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baker.inside import decide, manifest
from baker.inside import fill as filling
from baker.inside import live as lives
from baker.inside import settings as options
from baker.inside import start as entry
from tests.bad import images, users

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(["\ud800", "a/../b", "/", "x\0y", "9" * 5000]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
EDITS = st.lists(st.tuples(st.integers(0, 2**31), st.sampled_from(["replace", "delete", "repeat"]), JSON), max_size=4)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[images.Image]:
    made = images.make(tmp_path_factory.mktemp("property") / "image")
    made.thaw()
    yield made
    made.thaw()


def nodes(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON document."""
    found: list[tuple[Any, Any]] = []
    keys: list[Any] = list(document) if isinstance(document, dict) else list(range(len(document))) if isinstance(document, list) else []
    for key in keys:
        found.append((document, key))
        found += nodes(document[key])
    return found


def edit(document: Any, edits: list[tuple[int, str, Any]]) -> Any:
    """The document with nodes replaced, deleted or repeated."""
    document = copy.deepcopy(document)
    for where, how, value in edits:
        places = nodes(document)
        if not places:
            return document
        container, key = places[where % len(places)]
        if how == "replace":
            container[key] = value
        elif how == "delete":
            del container[key]
        elif isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        else:
            container[str(key) + "2"] = copy.deepcopy(container[key])
    return document


def judged(image: images.Image, data: bytes) -> decide.Decision:
    (image.root / "manifest.json").write_bytes(data)
    env = {**image.environ, "BAKER_MANIFEST_DIGEST": manifest.digest(data), "BAKER_VERIFY": "full"}
    return decide.decide(options.parse([str(image.root / "start"), "--", *image.argv], env))


def truly_intact(image: images.Image, kind: manifest.Kind, set_name: str) -> bool:
    """Written apart from the product: the tree holds exactly the listed files with the listed bytes."""
    base = image.root / "sets" / set_name / kind.name
    found = {}
    for directory, below, names in os.walk(base):
        for name in [*names, *(n for n in below if (Path(directory) / n).is_symlink())]:
            path = Path(directory) / name
            regular = stat.S_ISREG(path.lstat().st_mode)
            found[str(path.relative_to(base))] = hashlib.sha256(path.read_bytes()).hexdigest() if regular else "not a file"
    return found == {file.path: file.sha256 for file in kind.files}


def judge_and_fill(image: images.Image, data: bytes, tmp: Path) -> decide.Decision:
    decision = judged(image, data)
    if decision.cache_set is not None:
        shown = [kind for kind in decision.cache_set.kinds if kind.name in decision.verdict.shown]
        assert all(kind.rows and truly_intact(image, kind, decision.cache_set.name) for kind in shown)
        live = lives.Live(lives.make_private({"TMPDIR": str(tmp)}, "live"), True, -1)
        jobs = [filling.Job(kind, str(image.root / "sets" / decision.cache_set.name / kind.name)) for kind in shown]
        try:
            filling.fill(live, decision.digest, decision.cache_set.name, jobs, [])
        except filling.FillError:
            return decision  # a manifest may ask for what no file system takes; start then falls back
        for kind in shown:
            visible = {str(p.relative_to(Path(live.path) / kind.name)) for p in (Path(live.path) / kind.name).rglob("*") if p.is_file()}
            assert visible == {file.path for file in kind.files}
    return decision


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_an_edited_manifest_never_breaks_the_check(image: images.Image, tmp_path: Path, edits: list[tuple[int, str, Any]]) -> None:
    data = json.dumps(edit(image.document, edits)).encode("utf-8", "surrogatepass")
    decision = judge_and_fill(image, data, tmp_path)
    if not edits:
        assert decision.verdict.word == "compatible"


@given(data=st.binary(max_size=200))
def test_any_bytes_are_no_manifest_but_no_crash(image: images.Image, data: bytes) -> None:
    assert judged(image, data).verdict.word == "cold"


@given(cut=st.integers(0, 10_000), at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_damaged_manifest_bytes(image: images.Image, cut: int, at: int, byte: int) -> None:
    data = bytearray(manifest.canonical(image.document))
    data[at % len(data)] = byte
    judged(image, bytes(data[: max(1, len(data) - cut % len(data))]) if cut % 2 else bytes(data))


def damage_tree(base: Path, how: str, chance: random.Random) -> None:
    """One random act on the tree below `base`."""
    paths = sorted(path for path in base.rglob("*") if path.is_symlink() or not path.is_dir())
    target = chance.choice(paths)
    if how == "flip" and target.is_file() and not target.is_symlink():
        images.flip(target, chance.randrange(10_000))
    elif how == "extra":
        (target.parent / f"x{chance.randrange(1000)}").write_bytes(b"x")
    elif how == "other":
        target.unlink()
        chance.choice([lambda: os.mkfifo(target), lambda: target.symlink_to("/etc"), lambda: target.mkdir(), lambda: None])()
    elif how == "swap":
        other = chance.choice(paths)
        first, second = target.with_name(target.name + ".t"), other
        target.rename(first)
        if second.exists():
            second.rename(target)
        first.rename(second if second != target else target)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(acts=st.lists(st.sampled_from(["flip", "extra", "other", "swap"]), max_size=4), seed=st.integers(0, 2**31))
def test_a_damaged_tree_is_never_shown(tmp_path_factory: pytest.TempPathFactory, acts: list[str], seed: int) -> None:
    directory = tmp_path_factory.mktemp("tree")
    image = images.make(directory / "image")
    image.thaw()
    chance = random.Random(seed)
    for act in acts:
        damage_tree(image.root / "sets", act, chance)
    decision = judge_and_fill(image, manifest.canonical(image.document), directory)
    assert decision.cache_set is not None
    for kind in decision.cache_set.kinds:
        assert (kind.name in decision.verdict.shown) == truly_intact(image, kind, images.SET), decision.verdict.damage


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(edits=EDITS, policy=st.sampled_from(["auto", "strict", "off"]))
def test_start_ends_only_in_its_own_ways(image: images.Image, tmp_path: Path, edits: list[tuple[int, str, Any]], policy: str) -> None:
    data = json.dumps(edit(image.document, edits)).encode("utf-8", "surrogatepass")
    (image.root / "manifest.json").write_bytes(data)
    env = {
        **image.environ,
        "BAKER_MANIFEST_DIGEST": manifest.digest(data),
        "BAKER_POLICY": policy,
        "BAKER_STATUS": str(tmp_path / "status.json"),
        "BAKER_TERMINATION_LOG": str(tmp_path / "log"),
        "TMPDIR": str(tmp_path),
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    done = users.run_main(entry.main, [str(image.root / "start"), "--", *image.argv], env, tmp_path)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 0 or (policy == "strict" and done.returncode == 107), done.stderr
    assert users.structured_line(done.stderr)["policy"] == policy
    assert (done.stdout != "") == (done.returncode == 0)
    assert sys.executable
