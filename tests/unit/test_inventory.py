"""Inventory of hostile trees: types, hashes, nothing opened that is not a regular file, changes under the reader noticed."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from pathlib import Path

import pytest

from baker.inside import inventory
from baker.inside.inventory import Entry, InventoryError


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_walk_lists_files_links_and_others_and_no_directories(tmp_path: Path) -> None:
    (tmp_path / "d" / "empty").mkdir(parents=True)
    (tmp_path / "d" / "f").write_bytes(b"abc")
    (tmp_path / "zero").write_bytes(b"")
    (tmp_path / "link").symlink_to("d/f")
    (tmp_path / "dirlink").symlink_to("d")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        found = inventory.walk(str(tmp_path))
    assert found == {
        "d/f": Entry("file", 3, sha(b"abc")),
        "dangling": Entry("link", 7, "nowhere"),
        "dirlink": Entry("link", 1, "d"),
        "link": Entry("link", 3, "d/f"),
        "pipe": Entry("other", 0, None),
        "s": Entry("other", 0, None),
        "zero": Entry("file", 0, sha(b"")),
    }
    assert list(found) == sorted(found)
    assert list(found["d/f"]) == ["file", 3, sha(b"abc")], "the form of JobResult.before and after"


def test_walk_without_hash_reads_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    assert inventory.walk(str(tmp_path), hash=False) == {"f": Entry("file", 3, None)}


def test_an_absent_root_is_empty_and_a_file_is_an_error(tmp_path: Path) -> None:
    assert inventory.walk(str(tmp_path / "none")) == {}
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(InventoryError, match=r"/f: cannot be listed"):
        inventory.walk(str(tmp_path / "f"))


def test_names_that_are_not_text_survive(tmp_path: Path) -> None:
    for name in (b"new\nline", b"\xff\xfe", "Ω".encode()):
        (tmp_path / os.fsdecode(name)).write_bytes(name)
    found = inventory.walk(str(tmp_path))
    assert {os.fsencode(path): entry.value for path, entry in found.items()} == {n: sha(n) for n in (b"new\nline", b"\xff\xfe", "Ω".encode())}
    assert inventory.shown("new\nline") == "new\\nline"


def test_followed_links_carry_the_hash_of_their_end(tmp_path: Path) -> None:
    (tmp_path / "pristine").mkdir()
    (tmp_path / "pristine" / "f").write_bytes(b"abc")
    live = tmp_path / "live"
    live.mkdir()
    (live / "f").symlink_to(tmp_path / "pristine" / "f")
    (live / "gone").symlink_to(tmp_path / "pristine" / "g")
    (live / "own").write_bytes(b"x")
    found = inventory.walk_followed(str(live))
    assert found["f"][0] == "link"
    assert found["f"].content == sha(b"abc")
    assert found["gone"].content == ""
    assert found["own"].content == ""
    assert found["own"].value == sha(b"x")


def test_large_files_are_hashed_in_pieces(tmp_path: Path) -> None:
    data = os.urandom(inventory.BLOCK * 2 + 17)
    (tmp_path / "big").write_bytes(data)
    assert inventory.hash_file(str(tmp_path / "big")) == (len(data), sha(data))


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "f").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("f")
    begin = time.monotonic()
    for name, why in (("pipe", "not a regular file"), ("link", "cannot be opened"), (".", "not a regular file"), ("no\0name", "cannot be opened")):
        with pytest.raises(InventoryError, match=why):
            inventory.hash_file(f"{tmp_path}/{name}")
    assert time.monotonic() - begin < 1


def test_a_file_that_keeps_changing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "busy"
    with path.open("wb") as sparse:
        sparse.truncate(64 << 20)  # long enough to read that the writer gets its turn on a busy machine
    stop = threading.Event()

    def grow() -> None:
        with path.open("ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"x")

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        with pytest.raises(InventoryError, match="busy: changed while it was read, 3 times in a row"):
            inventory.hash_file(str(path))
    finally:
        stop.set()
        writer.join()


def test_too_deep_is_an_error_not_a_crash(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    depth = inventory.DEPTH + 5
    try:
        for _ in range(depth):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    with pytest.raises(InventoryError, match="more than 200 directories deep"):
        inventory.scan(str(tmp_path))


def test_hashing_is_bounded_in_time(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(4 << 20))
    jobs = {i: str(path) for i in range(2000)}
    begin = time.monotonic()
    done = inventory.hash_many(jobs, limit_s=0.3)
    assert time.monotonic() - begin < 2
    assert 0 < len(done) < 2000
    assert set(done.values()) == {(4 << 20, sha(bytes(4 << 20)))}
