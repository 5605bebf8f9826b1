from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from baker.errors import ArtifactError
from baker.pack.ground import Ground, survey_base
from baker.pack.unpack import LayerFile


def _entry(name: str, kind: bytes = tarfile.DIRTYPE, mode: int = 0o755, link: str = "", data: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = kind, mode, link, len(data)
    return info, data


def _layer(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> LayerFile:
    with tarfile.open(path, "w") as tar:
        for info, data in entries:
            tar.addfile(info, io.BytesIO(data))
    return LayerFile(path)


def _ground(
    tmp_path: Path, *layers: list[tuple[tarfile.TarInfo, bytes]], config: dict[str, object] | None = None, root: str = "/opt/baker"
) -> Ground:
    files = [_layer(tmp_path / str(n), *entries) for n, entries in enumerate(layers)]
    return survey_base({"config": config or {}}, files, root)


FILE = tarfile.REGTYPE


def test_existing_parents_are_told(tmp_path: Path) -> None:
    """Case O-34: what the base has is not emitted again."""
    assert _ground(tmp_path, [_entry("opt/")]).existing == {"opt"}
    assert _ground(tmp_path, [_entry("./usr")]).existing == frozenset()
    assert _ground(tmp_path, [_entry("tmp", mode=0o1777)], root="/tmp/x").existing == {"tmp"}


def test_a_parent_implied_by_a_deeper_path_exists(tmp_path: Path) -> None:
    assert _ground(tmp_path, [_entry("opt/other/file", FILE)]).existing == {"opt"}


def test_deleted_parents_do_not_exist(tmp_path: Path) -> None:
    assert _ground(tmp_path, [_entry("opt/")], [_entry(".wh.opt", FILE)]).existing == frozenset()
    assert _ground(tmp_path, [_entry("opt/"), _entry("opt/baker")], [_entry("opt/.wh..wh..opq", FILE)]).existing == {"opt"}
    assert _ground(tmp_path, [_entry("opt", tarfile.SYMTYPE, link="usr/opt")], [_entry("opt/")]).existing == {"opt"}


def test_a_mode_that_keeps_users_out_is_said(tmp_path: Path) -> None:
    found = _ground(tmp_path, [_entry("root", mode=0o700)], root="/root/.cache/baker")
    assert [(f.code, f.severity, f.found) for f in found.findings] == [("base-mode", "soft", "0700")]


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        (_entry("opt", tarfile.SYMTYPE, link="usr/opt"), "base-link"),
        (_entry("opt", tarfile.LNKTYPE, link="usr/opt"), "base-link"),
        (_entry("opt", FILE), "base-file"),
        (_entry("opt/baker/start", FILE), "base-occupied"),
        (_entry("opt/baker/sets/cpu/k/f", FILE), "base-occupied"),
    ],
)
def test_what_stands_in_the_way_is_refused(tmp_path: Path, entry: tuple[tarfile.TarInfo, bytes], code: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        _ground(tmp_path, [_entry("etc/"), entry])
    assert caught.value.code == code
    assert "--root" in caught.value.remedy


@pytest.mark.parametrize("volume", ["/opt", "/opt/baker", "/opt/baker/", "/", "/opt/baker/sets"])
def test_a_volume_over_the_root_is_refused(tmp_path: Path, volume: str) -> None:
    """Case O-35."""
    with pytest.raises(ArtifactError, match="declares the volume") as caught:
        _ground(tmp_path, config={"Volumes": {volume: {}}})
    assert volume in caught.value.message


def test_other_volumes_are_fine(tmp_path: Path) -> None:
    assert _ground(tmp_path, config={"Volumes": {"/data": {}, "/opt/baker2": {}, "/opt/baker/live": {}}}) == Ground()


@pytest.mark.parametrize(
    ("user", "uid"), [("", 0), ("2000", 2000), ("2000:0", 2000), ("vllm", 1234), ("vllm:vllm", 1234), ("nobody-here", 0), ("99999999999", 0)]
)
def test_the_user_of_the_base_is_resolved(tmp_path: Path, user: str, uid: int) -> None:
    passwd = b"root:x:0:0::/root:/bin/sh\nbroken line\nvllm:x:1234:0::/home/vllm:/bin/sh\n"
    assert _ground(tmp_path, [_entry("etc/passwd", FILE, data=passwd)], config={"User": user}).user == uid


def test_a_damaged_base_layer_is_refused(tmp_path: Path) -> None:
    _layer(tmp_path / "l", _entry("opt/"))
    with pytest.raises(ArtifactError, match="digest differs"):
        survey_base({}, [LayerFile(tmp_path / "l", digest="sha256:" + "0" * 64)], "/opt/baker")
    (tmp_path / "l").write_bytes(b"\x1f\x8b garbage")
    with pytest.raises(ArtifactError, match="not a whole tar"):
        survey_base({}, [LayerFile(tmp_path / "l")], "/opt/baker")
