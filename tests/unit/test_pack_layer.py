from __future__ import annotations

import gzip
import hashlib
import io
import os
import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import zstandard

from baker.errors import ArtifactError, MachineError, UsageError
from baker.pack import atomic, compress, tarhead
from baker.pack.layer import Member, blob, directory, tree_members, write_layer
from baker.pack.reading import mtime_ns
from baker.pack.source import Source
from baker.pack.tree import Survey
from tests.bad import sound
from tests.bad.trees import odd_names


def _tar(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _entries(path: Path) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(_tar(path)), encoding="utf-8", errors="surrogateescape") as tar:
        return tar.getmembers()


def _pack(tree: Path, out: Path, compression: str = "gzip") -> tuple[Survey, Path]:
    found = sound.look(tree)
    return found, write_layer("inductor", tree_members(tree, "p", found.files), out, created=7, compression=compression).path


@pytest.mark.parametrize("compression", [item.name for item in compress.ALL])
def test_both_identities_are_right(tmp_path: Path, compression: str) -> None:
    tree = sound.write(tmp_path / "t")
    found = sound.look(tree)
    layer = write_layer("inductor", tree_members(tree, "p", found.files), tmp_path / "o", created=0, compression=compression)
    data = layer.path.read_bytes()
    assert layer.digest == "sha256:" + hashlib.sha256(data).hexdigest()
    assert layer.diff_id == "sha256:" + hashlib.sha256(_tar(layer.path)).hexdigest()
    assert (layer.size, layer.files, layer.unpacked) == (len(data), len(sound.FILES), found.size)
    assert layer.path.name == layer.digest.removeprefix("sha256:")
    assert layer.media_type.endswith("+" + compression)


def test_same_content_same_bytes(tmp_path: Path) -> None:
    """Case O-31: two directories, shuffled creation order, two umasks, other times."""
    names = [*sound.FILES, *(f"many/{n:03d}" for n in range(200))]
    files = {**{n: n.encode() * 50 for n in names}, **sound.FILES}
    digests = []
    for number, umask in enumerate((0o022, 0o077)):
        before = os.umask(umask)
        try:
            order = list(files)
            random.Random(number).shuffle(order)
            tree = sound.write(tmp_path / f"t{number}", files, order)
            os.utime(tree / "many/000", (number, number))
            digests.append(_pack(tree, tmp_path / f"o{number}")[1].name)
        finally:
            os.umask(before)
    assert digests[0] == digests[1]


def test_gzip_header_carries_neither_name_nor_time(tmp_path: Path) -> None:
    _, path = _pack(sound.write(tmp_path / "t"), tmp_path / "o")
    assert path.read_bytes()[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


def test_entries_have_fixed_owner_modes_and_times(tmp_path: Path) -> None:
    """Case O-30; as root the files really belong to a UID that no octal field holds."""
    tree = sound.write(tmp_path / "t")
    if os.geteuid() == 0:
        for path in tree.rglob("*"):
            os.chown(path, 1000240000, 1000240000)
    entries = _entries(_pack(tree, tmp_path / "o")[1])
    assert {(e.uid, e.gid, e.uname, e.gname) for e in entries} == {(0, 0, "", "")}
    assert {e.mode for e in entries if e.isdir()} == {0o555}
    assert {e.mode for e in entries if e.isreg()} == {0o444}
    assert {e.mtime for e in entries} == {7}
    assert not any(e.pax_headers for e in entries)
    names = [os.fsencode(e.name) for e in entries]
    assert names == sorted(names)


def test_times_in_nanoseconds_survive(tmp_path: Path) -> None:
    times = [1_700_000_000_123_456_789, 1_700_000_000_000_000_000, 999_999_999, -1, 8**11 * 10**9 + 5]
    members = [Member(f"f{n}", 0o444, b"", 0, hashlib.sha256().hexdigest(), t) for n, t in enumerate(times)]
    assert [mtime_ns(e) for e in _entries(write_layer("k", members, tmp_path, created=0).path)] == times


def test_odd_names_survive_python_and_gnu_tar(tmp_path: Path) -> None:
    """Case O-29."""
    files = odd_names(tmp_path / "t")
    _, path = _pack(tmp_path / "t", tmp_path / "o")
    assert {e.name.removeprefix("p/") for e in _entries(path) if e.isreg()} == set(files)
    if shutil.which("tar") is None:
        pytest.skip("no GNU tar here")
    (tmp_path / "x").mkdir()
    done = subprocess.run(["tar", "-xf", "-", "-C", tmp_path / "x"], input=_tar(path), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {name: (tmp_path / "x/p" / name).read_bytes() for name in files} == files


@pytest.mark.parametrize("name", ["", "a//b", "../up", "a/./b", "nul\0", "x" * 256, "/".join(["y" * 200] * 21), "lone\ud800"])
def test_a_name_that_cannot_be_stored_is_shown_escaped(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        write_layer("k", [blob(name, b"1")], tmp_path, created=0)
    assert caught.value.code == "name-unstorable"
    assert "\0" not in caught.value.message
    caught.value.message.encode()
    assert list(tmp_path.iterdir()) == []


def test_duplicates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="stands twice"):
        write_layer("k", [blob("a", b"1"), blob("a", b"2")], tmp_path, created=0)
    with pytest.raises(ArtifactError, match="file and a directory"):
        write_layer("k", [blob("a", b"1"), blob("a/b", b"2")], tmp_path, created=0)
    assert write_layer("k", [directory("a"), directory("a")], tmp_path, created=0).files == 0


@pytest.mark.parametrize("change", ["content", "longer", "shorter", "gone", "link-out"])
def test_a_file_changed_after_the_survey_is_named(tmp_path: Path, change: str) -> None:
    tree = sound.write(tmp_path / "t", {"a": b"12345678", "b": b"x"})
    found = sound.look(tree)
    (tree / "a").unlink()
    if change == "link-out":
        (tree / "a").symlink_to("/etc/hostname")
    elif change != "gone":
        (tree / "a").write_bytes({"content": b"1234567X", "longer": b"123456789", "shorter": b"1"}[change])
    with pytest.raises(ArtifactError, match=r"^(p/)?a: "):
        write_layer("k", tree_members(tree, "p", found.files), tmp_path / "o", created=0)
    assert list((tmp_path / "o").iterdir()) == []


def test_a_file_beyond_eight_gigabytes_gets_a_size_record() -> None:
    size = 8 << 30
    head = tarhead.header(b"big", directory=False, mode=0o444, size=size, uid=1000240000)
    info = tarfile.open(fileobj=io.BytesIO(head + bytes(1024))).next()  # noqa: SIM115
    assert info is not None
    assert (info.size, info.uid) == (size, 1000240000)


def test_leftovers_of_a_dead_writer_are_swept_but_not_those_of_a_living_one(tmp_path: Path) -> None:
    stale = tmp_path / f"{atomic.PREFIX}dead"
    stale.write_bytes(b"half")
    with atomic.partial(tmp_path) as (handle, living):
        handle.write(b"being written")
        assert atomic.sweep(tmp_path) == 1
        assert living.exists()
        assert not stale.exists()
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_directory_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(MachineError, match="cannot write layer k"):
        write_layer("k", [blob("a", b"1")], tmp_path / "file" / "out", created=0)


def test_full_disk_tells_needed_and_free_and_leaves_nothing(tmp_path: Path) -> None:
    """Case O-36."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=False, capture_output=True).returncode != 0:
        pytest.skip("mount is not permitted here")
    try:
        tree = tmp_path / "t"
        tree.mkdir()
        (tree / "noise").write_bytes(random.Random(1).randbytes(4 << 20))
        found = sound.look(tree)
        with pytest.raises(MachineError, match=r"up to \d{7,} bytes needed, \d+ bytes free at .*small") as caught:
            write_layer("inductor", tree_members(tree, "p", found.files), small, created=0)
        assert caught.value.code == "no-space"
        assert list(small.iterdir()) == []
        assert (tree / "noise").stat().st_size == 4 << 20
    finally:
        subprocess.run(["umount", small], check=True)


def test_unknown_compression_lists_the_names() -> None:
    with pytest.raises(UsageError, match="unknown compression 'xz'") as caught:
        compress.by_name("xz")
    assert caught.value.expected == "gzip, zstd"
    assert compress.by_name("gzip").document() == {"format": "gzip", "library": "isal", "version": compress.ALL[0].version, "level": 1}


def test_content_longer_than_a_block_is_whole(tmp_path: Path) -> None:
    data = random.Random(2).randbytes((3 << 20) + 17)
    (tmp_path / "f").write_bytes(data)
    member = Member("f", 0o444, Source(tmp_path, "f"), len(data), hashlib.sha256(data).hexdigest())
    path = write_layer("k", [member], tmp_path / "o", created=0).path
    with tarfile.open(fileobj=io.BytesIO(_tar(path))) as tar:
        handle = tar.extractfile("f")
        assert handle is not None
        assert handle.read() == data
