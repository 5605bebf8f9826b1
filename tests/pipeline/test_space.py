"""Case O-36: a full disk is told with both numbers, loses no warmed cache, and the same command goes on when there is room again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from baker.executors.trees import move
from baker.pack.space import free
from baker.steps.space import FLOOR
from tests.pipeline.bakes import LOADS, Site, finish, until
from tests.pipeline.conftest import Sites

MEGABYTE = 1024 * 1024


class Disk:
    """A small file system in memory that can be filled and freed."""

    def __init__(self, path: Path, size: int) -> None:
        path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"a tmpfs needs root and CAP_SYS_ADMIN: {done.stderr.strip()}")
        self.path = path

    def fill(self, leave: int = 0) -> None:
        """Take all room but `leave` bytes."""
        with (self.path / "filler").open("ab") as file:
            while (room := free(self.path) - leave) > 0:
                with suppress(OSError):  # the build took some of it meanwhile
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, room)

    def free(self) -> None:
        """Give the room back."""
        (self.path / "filler").unlink()

    def close(self) -> None:
        """Unmount."""
        subprocess.run(["umount", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk", FLOOR + 64 * MEGABYTE)
    yield made
    made.close()


def test_too_little_room_is_told_before_anything_starts(disk: Disk, site: Sites) -> None:
    place = site(LOADS)
    disk.fill(leave=8 * MEGABYTE)
    for options in (("--output", f"oci:{disk.path / 'image'}"), ("--work", str(disk.path / "work")), ("--root", str(disk.path / "root"))):
        done = place.build("--json", *options)
        assert (done.code, done.error["code"]) == (3, "no-space"), done.text
        assert str(disk.path) in done.error["message"]
        assert "bytes free" in done.error["found"]
        assert str(FLOOR) in done.error["expected"]
        assert options[0] in done.error["remedy"]
    assert place.rounds() == []
    assert {path.name for path in disk.path.iterdir()} == {"filler"}


def _fill_in_round_two(place: Site, disk: Disk, leave: int, *options: str) -> tuple[int, str, dict[str, object]]:
    process = place.spawn("--json", "--no-prove", *options)
    try:
        until(lambda: place.state().get("round") == 2, process)
        disk.fill(leave)
    except BaseException:
        process.terminate()
        process.communicate(timeout=60)
        raise
    done = finish(process)
    return done.code, done.text, done.error


def test_a_full_output_keeps_the_warmed_tree(disk: Disk, site: Sites) -> None:
    place = site(LOADS)
    options = ("--output", f"oci:{disk.path / 'image'}")
    code, text, error = _fill_in_round_two(place, disk, 0, *options)
    assert (code, error["code"]) == (3, "no-space"), text
    assert "bytes free" in str(error["found"])
    assert "bytes" in str(error["expected"])
    assert (place.work / "strategies" / "aot" / "tree.json").exists()
    disk.free()
    assert not [path for path in disk.path.rglob("*") if path.name.startswith(".partial")]
    again = place.child("--json", "--no-prove", *options)
    assert again.code == 0, again.text
    assert "warmed in an earlier run, tree intact" in again.err
    assert "starting the server" not in again.err


def test_a_full_work_directory_keeps_the_rounds(disk: Disk, site: Sites) -> None:
    """Work and root lie on two file systems, so that the tree has to be copied where there is no room."""
    place = site(LOADS)
    place.work = disk.path / "work"
    code, text, error = _fill_in_round_two(place, disk, 0)
    assert code == 3, text
    assert error["code"] == "no-space", text
    disk.free()
    again = place.child("--json", "--no-prove")
    assert again.code == 0, again.text
    assert "round 1: starting" not in again.err
    assert {path.name for path in place.root.iterdir()} == {".baker.lock"}


def test_a_full_root_is_told_and_the_image_stays(disk: Disk, site: Sites) -> None:
    place = site(LOADS)
    place.root = disk.path / "root"
    done = place.child("--json", "--no-prove")
    assert done.code == 0, done.text
    disk.fill()
    proof = place.build("--json")
    assert proof.code == 3, proof.text
    assert proof.error["code"] == "no-space"
    assert "bytes free" in proof.error["found"] + proof.error["message"]
    assert (place.work / "strategies" / "aot" / "tree.json").exists()


def test_a_tree_moves_between_file_systems_whole_or_not_at_all(disk: Disk, tmp_path: Path) -> None:
    trees = [tmp_path / "live" / name for name in ("one", "two")]
    for tree in trees:
        (tree / "sub").mkdir(parents=True)
        (tree / "sub" / "file").write_bytes(b"x" * MEGABYTE)
        (tree / "link").symlink_to("sub/file")
        os.mkfifo(tree / "fifo")
    targets = [disk.path / "tree" / tree.name for tree in trees]
    targets[0].parent.mkdir()
    disk.fill(leave=MEGABYTE + MEGABYTE // 2)
    with pytest.raises(OSError, match="No space left") as caught:
        move(list(zip(trees, targets, strict=True)))
    assert caught.value.errno == 28
    assert [tree.joinpath("sub", "file").stat().st_size for tree in trees] == [MEGABYTE, MEGABYTE]
    assert list(targets[0].parent.iterdir()) == []
    disk.free()
    move(list(zip(trees, targets, strict=True)))
    for target in targets:
        assert (target / "link").read_bytes() == b"x" * MEGABYTE
        assert not (target / "fifo").exists()
    assert list((tmp_path / "live").iterdir()) == []
