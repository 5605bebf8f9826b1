from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from baker.errors import ArtifactError
from baker.pack.source import Source
from baker.pack.tree import inventory, survey
from tests.bad import sound
from tests.bad.trees import TREES, odd_names


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", [name for name, bad in TREES.items() if bad.refused])
def test_a_refused_tree_is_named(tmp_path: Path, name: str) -> None:
    sound.write(tmp_path)
    bad = TREES[name]
    bad.make(tmp_path)
    with pytest.raises(ArtifactError) as caught:
        sound.look(tmp_path)
    assert caught.value.code == bad.refused
    assert bad.names in caught.value.message
    assert caught.value.remedy


@pytest.mark.timeout(10)
@pytest.mark.parametrize("name", [name for name, bad in TREES.items() if bad.dropped])
def test_debris_is_left_out_and_counted(tmp_path: Path, name: str) -> None:
    sound.write(tmp_path)
    bad = TREES[name]
    bad.make(tmp_path)
    found = sound.look(tmp_path)
    assert {f.path for f in found.files} == set(sound.FILES)
    assert (bad.names, bad.dropped) in {(d.path, d.reason) for d in found.dropped}
    assert found.counts[bad.dropped] >= 1


def test_special_files_get_one_remark_each(tmp_path: Path) -> None:
    sound.write(tmp_path)
    TREES["socket"].make(tmp_path)
    TREES["fifo"].make(tmp_path)
    if os.geteuid() == 0:
        os.mknod(tmp_path / "null", 0o600 | 0o020000, os.makedev(1, 3))
    remarks = [f for f in sound.look(tmp_path).findings if f.code == "not-a-file"]
    assert len(remarks) == (3 if os.geteuid() == 0 else 2)
    assert {f.severity for f in remarks} == {"soft"}


def test_debris_of_racing_writers(tmp_path: Path) -> None:
    """Case O-14: temporary names go, good entries stay, counts are told."""
    sound.write(tmp_path)
    for name in ("temporary-file", "temporary-directory", "lock", "lock-file"):
        TREES[name].make(tmp_path)
    found = sound.look(tmp_path)
    assert {f.path for f in found.files} == set(sound.FILES)
    assert found.counts == {"lock": 2, "temporary file": 3}  # the temporary directory and its file, and one file


def test_a_package_called_lock_is_no_debris(tmp_path: Path) -> None:
    sound.write(tmp_path, {"site/lock/mod.pyc": b"code", "site/tmp/x.pyc": b"code"})
    assert [f.path for f in sound.look(tmp_path).files] == ["site/lock/mod.pyc", "site/tmp/x.pyc"]


def test_zero_bytes_fail_unless_excluded(tmp_path: Path) -> None:
    """Case O-11."""
    sound.write(tmp_path)
    name = "torch_aot_compile/ab/rank_3_0/model"
    sound.write(tmp_path, {name: b"", "torch_aot_compile/ab/rank_0_0/model": b"good"})
    with pytest.raises(ArtifactError, match=r"rank_3_0/model is empty \(got 0 bytes"):
        sound.look(tmp_path).require_sound()
    found = sound.look(tmp_path, exclude=[name])
    found.require_sound()
    assert [(d.path, d.reason) for d in found.dropped] == [(name, "excluded on request")]
    assert name not in {f.path for f in found.files}


def test_a_kind_decides_too(tmp_path: Path) -> None:
    sound.write(tmp_path)
    found = survey(tmp_path, sound.PlainKind(drop=["c4/c4mod.cpp"]))
    assert found.counts == {"debris of this kind": 1}
    with pytest.raises(ArtifactError, match=r"c4/c4mod\.so: this kind does not ship it"):
        survey(tmp_path, sound.PlainKind(refuse=["c4/c4mod.so"]))


def test_files_come_sorted_with_roles_and_hashes(tmp_path: Path) -> None:
    sound.write(tmp_path)
    found = sound.look(tmp_path)
    assert [os.fsencode(f.path) for f in found.files] == sorted(os.fsencode(p) for p in sound.FILES)
    assert {f.path: f.sha256 for f in found.files} == sound.hashes(tmp_path)
    assert {f.path for f in found.files if f.role == "inert"} == {"c4/c4mod.cpp"}
    assert found.directories == ("c4", "fxgraph", "fxgraph/ab", "pkg")
    assert all(f.mtime_ns is None for f in found.files)


def test_times_are_recorded_on_request(tmp_path: Path) -> None:
    sound.write(tmp_path, {"a": b"1"})
    os.utime(tmp_path / "a", ns=(1_700_000_000_123_456_789,) * 2)
    assert sound.look(tmp_path, mtimes=True).files[0].mtime_ns == 1_700_000_000_123_456_789


def test_a_link_inside_ships_as_a_file_and_is_said(tmp_path: Path) -> None:
    sound.write(tmp_path)
    (tmp_path / "alias.so").symlink_to("c4/c4mod.so")
    found = sound.look(tmp_path)
    by_path = {f.path: f for f in found.files}
    assert by_path["alias.so"].sha256 == by_path["c4/c4mod.so"].sha256
    assert [f.code for f in found.findings] == ["link-resolved"]


def test_hard_links_are_files(tmp_path: Path) -> None:
    sound.write(tmp_path)
    (tmp_path / "second").hardlink_to(tmp_path / "c4/c4mod.so")
    assert "second" in {f.path for f in sound.look(tmp_path).files}


def test_odd_names_survive(tmp_path: Path) -> None:
    files = odd_names(tmp_path)
    assert {f.path for f in sound.look(tmp_path).files} == set(files)


def test_literal_secrets_are_found_in_any_file(tmp_path: Path) -> None:
    """Case O-49: the value is named by its variable and never shown."""
    value = "hf_TESTSECRET-of-this-test"
    sound.write(tmp_path)
    sound.write(tmp_path, {"bin.so": b"\x7fELF\0\0" + b"\0" * 500 + value.encode() + b"\0", "big": b"a" * ((1 << 20) - 5) + value.encode()})
    with pytest.raises(ArtifactError) as caught:
        sound.look(tmp_path, secrets={"HF_TOKEN": value})
    shown = str(caught.value.document())
    assert "the value of HF_TOKEN" in shown
    assert "bin.so" in shown
    assert "big: " in shown
    assert value not in shown


def test_a_secret_in_a_name_is_not_repeated(tmp_path: Path) -> None:
    value = "s3cr3t-value-xyz"
    (tmp_path / f"link-{value}").symlink_to(f"/nowhere/{value}")
    with pytest.raises(ArtifactError) as caught:
        sound.look(tmp_path, secrets={"PW": value})
    assert value not in str(caught.value.document())


def test_a_large_unknown_file_is_reported_and_ships(tmp_path: Path) -> None:
    """Case O-51 (4): an Inductor constant file."""
    with (tmp_path / "constants.bin").open("wb") as handle:
        handle.truncate(101 << 20)
    found = sound.look(tmp_path)
    assert [f.path for f in found.files] == ["constants.bin"]
    assert [f.code for f in found.findings] == ["large-file"]


def test_weights_ship_when_asked(tmp_path: Path) -> None:
    TREES["weights-by-hash"].make(tmp_path)
    assert len(sound.look(tmp_path, weights=True).files) == 1


def test_text_that_looks_like_safetensors_is_none(tmp_path: Path) -> None:
    sound.write(tmp_path, {"a.json": b'{"dtype": 1, "data_offsets": [0, 1]}', "b": b"\x20\0\0\0\0\0\0\0{not json" + b" " * 99})
    assert len(sound.look(tmp_path).files) == 2


@pytest.mark.timeout(30)
def test_a_file_that_will_not_hold_still_is_named(tmp_path: Path) -> None:
    """Case O-14: a process still writes."""
    busy = tmp_path / "busy.bin"
    busy.write_bytes(b"0" * (8 << 20))
    stop = threading.Event()

    def churn() -> None:
        with busy.open("r+b") as handle:
            while not stop.is_set():
                handle.seek(0, os.SEEK_END)
                handle.write(b"1")
                handle.flush()

    writer = threading.Thread(target=churn)
    writer.start()
    try:
        with pytest.raises(ArtifactError, match=r"busy\.bin: changed while it was read") as caught:
            sound.look(tmp_path)
    finally:
        stop.set()
        writer.join()
    assert caught.value.code == "file-changed"


@pytest.mark.timeout(10)
def test_a_fifo_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "was-a-file")
    with pytest.raises(ArtifactError, match="no regular file any more"):
        list(Source(tmp_path, "was-a-file").chunks())


def test_a_tree_too_deep_for_start_is_refused(tmp_path: Path) -> None:
    deep = "/".join(["d"] * 220)
    (tmp_path / deep).mkdir(parents=True)
    (tmp_path / deep / "f").write_bytes(b"1")
    with pytest.raises(ArtifactError, match="directories deep"):
        sound.look(tmp_path)


def test_a_missing_tree_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="vanished"):
        sound.look(tmp_path / "no")


def test_inventory_has_the_form_of_a_job_result(tmp_path: Path) -> None:
    sound.write(tmp_path, {"a": b"1"})
    (tmp_path / "l").symlink_to("a")
    found = inventory(tmp_path)
    assert found["a"] == ["file", 1, sound.hashes(tmp_path)["a"]]
    assert found["l"][0] == "link"
    assert inventory(tmp_path / "absent") == {}
