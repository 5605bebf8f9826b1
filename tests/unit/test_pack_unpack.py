from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from baker.errors import ArtifactError
from baker.pack.unpack import OWNED, LayerFile, clear, unpack
from tests.bad import sound
from tests.bad.trees import odd_names

Adder = Callable[[tarfile.TarFile], None]


def _file(name: str, data: bytes = b"1", mode: int = 0o444) -> Adder:
    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), mode
        tar.addfile(info, io.BytesIO(data))

    return add


def _other(name: str, kind: bytes, link: str = "", mode: int = 0o755) -> Adder:
    def add(tar: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.mode = kind, link, mode
        tar.addfile(info)

    return add


def _layer(path: Path, *adders: Adder) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for add in adders:
            add(tar)
    return path


def _snapshot(root: Path) -> dict[str, tuple[int, str]]:
    found = {}
    for path in sorted(root.rglob("*")):
        info = path.lstat()
        found[str(path.relative_to(root))] = (stat.S_IMODE(info.st_mode), path.read_bytes().hex() if path.is_file() else "")
    return found


def test_an_image_lands_as_it_was_packed(tmp_path: Path) -> None:
    tree = sound.write(tmp_path / "t")
    odd = odd_names(tree)
    layers, _ = sound.layers(tree, tmp_path / "o")
    root = tmp_path / "root"
    unpack([layer.path for layer in layers], root, prefix=sound.ROOT)
    pristine = root / "sets/cpu/inductor"
    assert sound.hashes(pristine) == sound.hashes(tree)
    assert set(odd) <= set(sound.hashes(pristine))
    assert {stat.S_IMODE(p.stat().st_mode) for p in pristine.rglob("*") if p.is_dir()} == {0o555}
    assert {stat.S_IMODE(p.stat().st_mode) for p in pristine.rglob("*") if p.is_file()} == {0o444}
    assert stat.S_IMODE((root / "start").stat().st_mode) == 0o555
    assert stat.S_IMODE((root / "live/inductor").stat().st_mode) == 0o775
    assert list((root / "live/inductor").iterdir()) == []
    assert {p.stat().st_uid for p in root.rglob("*")} == {os.geteuid()}
    assert {int(p.stat().st_mtime) for p in root.rglob("*")} == {0}


def test_a_second_install_replaces_the_first_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / "root"
    first, _ = sound.layers(sound.write(tmp_path / "a"), tmp_path / "o")
    second, _ = sound.layers(sound.write(tmp_path / "b", {"only": b"1"}), tmp_path / "o")
    unpack([layer.path for layer in first], root, prefix=sound.ROOT)
    (root / "live/inductor/new").write_bytes(b"by the server")
    (root / ".baker.lock").write_text("1")
    (root / "mine").write_text("keep")
    unpack([layer.path for layer in second], root, prefix=sound.ROOT)
    assert set(sound.hashes(root / "sets/cpu/inductor")) == {"only"}
    assert list((root / "live/inductor").iterdir()) == []
    assert (root / "mine").read_text() == "keep"
    assert (root / ".baker.lock").exists()


def test_removal_does_not_follow_links(tmp_path: Path) -> None:
    outside = sound.write(tmp_path / "outside", {"precious": b"1"})
    root = tmp_path / "root"
    root.mkdir()
    (root / "sets").symlink_to(outside)
    (root / "live").mkdir()
    (root / "live/link").symlink_to(outside)
    clear(root)
    assert (outside / "precious").exists()
    assert list(root.iterdir()) == []


def test_the_root_and_what_is_above_keep_their_modes(tmp_path: Path) -> None:
    root = tmp_path / "r"
    root.mkdir(0o711)
    layers, _ = sound.layers(sound.write(tmp_path / "t"), tmp_path / "o")
    unpack([layer.path for layer in layers], root, prefix=sound.ROOT)
    assert stat.S_IMODE(root.stat().st_mode) == 0o711


UNSAFE: dict[str, tuple[Adder, ...]] = {
    "absolute, elsewhere": (_file("/etc/passwd"),),
    "climbs": (_file("opt/baker/sets/../../../etc/x"),),
    "beside the root": (_file("opt/other/x"),),
    "prefix of the root's name": (_file("opt/baker2/start"),),
    "a name that baker does not own": (_file("opt/baker/etc"),),
    "symbolic link out": (_other("opt/baker/sets/l", tarfile.SYMTYPE, "/etc"), _file("opt/baker/sets/l/x")),
    "hard link out": (_other("opt/baker/start", tarfile.LNKTYPE, "etc/passwd"),),
    "device": (_other("opt/baker/sets/null", tarfile.CHRTYPE),),
    "fifo": (_other("opt/baker/sets/pipe", tarfile.FIFOTYPE),),
    "file on the way": (_file("opt"),),
    "below a file": (_file("opt/baker/start"), _file("opt/baker/start/x")),
    "bare deletion": (_file("opt/baker/sets/.wh."),),
    "deletion of the parent": (_file("opt/baker/sets/.wh..."),),
}


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_entries_are_refused_and_leave_nothing(tmp_path: Path, name: str) -> None:
    layer = _layer(tmp_path / "l", _file("opt/baker/sets/cpu/k/good"), *UNSAFE[name])
    root = tmp_path / "root"
    with pytest.raises(ArtifactError) as caught:
        unpack([layer], root, prefix=sound.ROOT)
    assert caught.value.code == "entry-unsafe"
    assert list(root.iterdir()) == []
    assert not (tmp_path / "etc").exists()


def test_whiteouts_delete_what_lower_layers_put_there(tmp_path: Path) -> None:
    low = _layer(
        tmp_path / "1", _file("opt/baker/sets/a/k/x"), _file("opt/baker/sets/b/k/y"), _file("opt/baker/sets/c/k/z"), _file("opt/baker/start")
    )
    high = _layer(
        tmp_path / "2",
        _file("opt/baker/sets/b/k/own"),
        _file("opt/baker/sets/b/k/.wh..wh..opq"),
        _file("opt/baker/sets/.wh.a"),
        _file("opt/baker/.wh.start"),
    )
    root = tmp_path / "root"
    unpack([low, high], root, prefix=sound.ROOT)
    assert {name for name, (_, data) in _snapshot(root).items() if data} == {"sets/b/k/own", "sets/c/k/z"}


def test_a_later_layer_wins(tmp_path: Path) -> None:
    low = _layer(tmp_path / "1", _other("opt/baker/sets", tarfile.DIRTYPE, mode=0o555), _file("opt/baker/sets/x", b"old"))
    high = _layer(tmp_path / "2", _file("opt/baker/sets/x", b"new", 0o400))
    root = tmp_path / "root"
    unpack([low, high], root, prefix=sound.ROOT)
    assert _snapshot(root) == {"sets": (0o555, ""), "sets/x": (0o400, b"new".hex())}


def test_a_flipped_byte_is_noticed_and_undone(tmp_path: Path) -> None:
    layers, _ = sound.layers(sound.write(tmp_path / "t"), tmp_path / "o")
    plain = bytearray(gzip.decompress(layers[0].path.read_bytes()))
    plain[plain.index(b"\x7fELF") + 9] ^= 1
    layers[0].path.write_bytes(gzip.compress(bytes(plain)))
    root = tmp_path / "root"
    with pytest.raises(ArtifactError, match="digest differs"):
        unpack([layers[0].path], root, prefix=sound.ROOT)
    assert list(root.iterdir()) == []
    renamed = layers[0].path.rename(tmp_path / "renamed")
    with pytest.raises(ArtifactError, match="diff ID differs"):
        unpack([LayerFile(renamed, diff_id=layers[0].diff_id)], root, prefix=sound.ROOT)
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("keep", [0, 1, 10, 100, -1])
def test_a_truncated_layer_is_damaged(tmp_path: Path, keep: int) -> None:
    layers, _ = sound.layers(sound.write(tmp_path / "t"), tmp_path / "o")
    cut = tmp_path / "cut"
    cut.write_bytes(layers[0].path.read_bytes()[:keep])
    with pytest.raises(ArtifactError) as caught:
        unpack([LayerFile(cut, digest=layers[0].digest)], tmp_path / "root", prefix=sound.ROOT)
    assert caught.value.code == "layer-damaged"


def test_a_missing_layer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="blob is missing"):
        unpack([tmp_path / "no"], tmp_path / "root", prefix=sound.ROOT)


def test_owned_names_are_those_of_the_design() -> None:
    assert set(OWNED) == {"start", "bin", "sets", "live", "manifest.json"}
