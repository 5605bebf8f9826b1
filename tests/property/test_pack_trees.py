"""No odd tree makes the packer hang, crash with a foreign exception, follow a link out, or lose a file silently."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import socket
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baker.errors import ArtifactError, BakerError
from baker.pack import tarhead
from baker.pack.layer import tree_members, write_layer
from baker.pack.reading import LayerReader, mtime_ns
from baker.pack.tree import Survey
from baker.pack.unpack import LayerFile, unpack
from tests.bad import sound

_bytes = st.binary(min_size=1, max_size=40).filter(lambda b: b not in (b".", b"..") and b"/" not in b and b"\0" not in b)
_likely = st.sampled_from([b".wh.x", b"token", b"a.lock", b"tmp.pid_1", b"x.tmp", b"\xff\xfe", b"\n", "é".encode(), b"n" * 255, b"start", b"sets"])
_component = st.one_of(_bytes, _likely)
_path = st.lists(_component, min_size=1, max_size=4).map(lambda parts: os.fsdecode(b"/".join(parts)))
_what = st.one_of(
    st.binary(max_size=3000).map(lambda data: ("file", data)),
    st.sampled_from(["fifo", "socket", "out", "up", "self", "broken", "empty-directory"]).map(lambda kind: (kind, b"")),
)
_tree = st.dictionaries(_path, _what, max_size=8)


def _make(root: Path, tree: dict[str, tuple[str, bytes]]) -> None:
    for path, (kind, data) in tree.items():
        target = root / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                target.write_bytes(data)
            elif kind == "fifo":
                os.mkfifo(target)
            elif kind == "socket":
                here = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
                with socket.socket(socket.AF_UNIX) as server:
                    server.bind(os.fsencode(f"/proc/self/fd/{here}/") + os.fsencode(target.name))
                os.close(here)
            elif kind == "empty-directory":
                target.mkdir()
            else:
                target.symlink_to({"out": "/etc/hostname", "up": "../" * 30 + "etc", "self": target.name, "broken": "nothing"}[kind])
        except (FileExistsError, NotADirectoryError, IsADirectoryError, OSError):
            continue  # two drawn paths collide: the tree is what could be made of them


def _paths(root: Path) -> set[str]:
    found = set()
    for here, directories, names in os.walk(root):
        for name in [*names, *(d for d in directories if Path(here, d).is_symlink())]:
            found.add(os.path.relpath(Path(here, name), root))
    return found


def _survey(root: Path) -> Survey | None:
    try:
        return sound.look(root)
    except ArtifactError as caught:
        error = caught
    assert error.remedy
    error.message.encode()  # can be printed
    return None


@pytest.mark.timeout(60)
@given(_tree)
def test_any_tree_packs_and_comes_back_or_is_refused_by_name(tree: dict[str, tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory, "t")
        root.mkdir()
        _make(root, tree)
        found = _survey(root)
        if found is None:
            return
        accounted = {f.path for f in found.files} | {d.path for d in found.dropped}
        assert _paths(root) <= accounted, "a path was lost silently"
        layer = write_layer("k", tree_members(root, "opt/baker/sets/s/k", found.files), Path(directory, "o"), created=0)
        unpack([LayerFile(layer.path, layer.digest, layer.diff_id)], Path(directory, "u"), prefix="/opt/baker")
        there = Path(directory, "u/sets/s/k")
        assert sound.hashes(there) == {f.path: f.sha256 for f in found.files}
        assert all((root / f.path).read_bytes() == (there / f.path).read_bytes() for f in found.files)


@given(
    st.lists(
        st.binary(min_size=1, max_size=250).filter(lambda b: b"/" not in b and b"\0" not in b and b not in (b".", b"..")), min_size=1, max_size=8
    ),
    st.integers(-(10**18), 10**20),
    st.integers(0, 2**32 - 2),
)
def test_any_header_is_read_back_by_tarfile(parts: list[bytes], when: int, uid: int) -> None:
    name = b"/".join(parts)
    head = tarhead.header(name, directory=False, mode=0o444, mtime_ns=when, uid=uid)
    assert len(head) % tarhead.BLOCK == 0
    with tarfile.open(fileobj=io.BytesIO(head + tarhead.END), encoding="utf-8", errors="surrogateescape") as tar:
        (info,) = tar.getmembers()
    assert (os.fsencode(info.name), mtime_ns(info), info.uid, info.mode) == (name, when, uid, 0o444)


@given(st.data())
def test_any_damage_to_a_layer_is_a_baker_error(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        tree = sound.write(Path(directory, "t"))
        found = sound.look(tree)
        layer = write_layer("k", tree_members(tree, "opt/baker/sets/s/k", found.files), Path(directory, "o"), created=0)
        compressed = data.draw(st.booleans())
        raw = bytearray(layer.path.read_bytes() if compressed else gzip.decompress(layer.path.read_bytes()))
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        bad = Path(directory, "bad")
        bad.write_bytes(raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw)
        root = Path(directory, "u")
        try:
            unpack([LayerFile(bad, diff_id=layer.diff_id)], root, prefix="/opt/baker")
        except BakerError:
            assert not root.exists() or list(root.iterdir()) == []
            return
        assert sound.hashes(root / "sets/s/k") == sound.hashes(tree)  # only the gzip header was touched, or a byte was set to itself


@given(st.binary(max_size=2000))
def test_any_bytes_as_a_layer_are_read_or_refused(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "l")
        path.write_bytes(data)
        with contextlib.suppress(ArtifactError), LayerReader(path) as reader:
            for info in reader:
                list(reader.content(info))
            assert reader.finish().size == len(data)
