"""A damaged work directory: the same command does the step again, and never trusts what is not whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.bakes import Site, run


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x20
    path.write_bytes(bytes(data))


def _replace(by: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        by(path)

    return damage


DAMAGE: dict[str, Callable[[Path], None]] = {
    "flipped": _flip,
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "deep": lambda path: path.write_text("[" * 100_000),
    "other types": lambda path: path.write_text('{"kinds": 5, "inventory": [], "rounds": {}, "tokens": "x", "facts": 3}'),
    "pipe": _replace(os.mkfifo),
    "directory": _replace(Path.mkdir),
    "link to nothing": _replace(lambda path: path.symlink_to("/nonexistent/x")),
}
FILES = ("plan.json", "tools.zip", "jobs/aot-round-1.json", "logs/aot-round-1.log", "strategies/aot/tree.json", "image/index.json")


@pytest.fixture
def copied(baked: Site, tmp_path: Path) -> Path:
    """A copy of the finished work directory."""
    shutil.copytree(baked.work, tmp_path / "work", symlinks=True)
    return tmp_path / "work"


def _again(baked: Site, work: Path) -> None:
    output = work.parent / "image"
    done = baked.child("--json", "--no-prove", "--work", str(work), "--output", f"oci:{output}")
    assert done.code == 0, done.text
    shown = run("inspect", "--json", done.document["reference"])
    assert shown.code == 0, shown.text


@pytest.mark.parametrize("file", FILES[:5])
@pytest.mark.parametrize("how", ["pipe", "link to nothing"])
def test_what_would_be_waited_for_or_followed(baked: Site, copied: Path, file: str, how: str) -> None:
    DAMAGE[how](copied / file)
    _again(baked, copied)
    assert not Path("/nonexistent").exists()


@pytest.mark.parametrize("how", ["flipped", "empty", "half", "deep", "other types", "directory"])
def test_a_record_that_is_not_whole(baked: Site, copied: Path, how: str) -> None:
    record = copied / "strategies" / "aot" / "tree.json"
    DAMAGE[how](record)
    if how == "directory":
        done = baked.build("--json", "--no-prove", "--work", str(copied), "--output", f"oci:{copied.parent / 'image'}")
        assert (done.code, done.error["code"]) == (3, "work-not-writable"), done.text
        record.rmdir()
    _again(baked, copied)


def test_an_edited_record_is_not_trusted(baked: Site, copied: Path) -> None:
    record = copied / "strategies" / "aot" / "tree.json"
    document = json.loads(record.read_text())
    document["tokens"][0][0] += 1
    record.write_text(json.dumps(document))
    done = baked.child("--no-prove", "--work", str(copied), "--output", f"oci:{copied.parent / 'image'}")
    assert done.code == 0, done.text
    assert "tree intact" not in done.err, done.text


@pytest.mark.parametrize("how", ["empty", "deep", "pipe", "link to nothing"])
def test_a_damaged_candidate_is_made_again(baked: Site, copied: Path, how: str) -> None:
    DAMAGE[how](copied / "image" / "index.json")
    _again(baked, copied)


def test_a_tree_that_became_a_link(baked: Site, copied: Path) -> None:
    tree = copied / "strategies" / "aot" / "tree" / "vllm"
    shutil.rmtree(tree)
    tree.symlink_to("/etc/hostname")
    _again(baked, copied)
    assert Path("/etc/hostname").exists()
