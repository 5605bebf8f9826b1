"""Live: filled by links and copies, idempotent, nothing of the user's deleted, a private one where the given one cannot be used."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from baker.inside import fill as filling
from baker.inside import live as lives
from baker.inside import manifest as manifests
from tests.bad import images, users

DIGEST, OTHER = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.fixture
def image(tmp_path: Path) -> Iterator[images.Image]:
    made = images.make(tmp_path / "image")
    yield made
    made.thaw()


def jobs(image: images.Image) -> list[filling.Job]:
    parsed = manifests.parse((image.root / "manifest.json").read_bytes())
    return [filling.Job(kind, str(image.pristine(kind.name))) for kind in parsed.sets[0].kinds]


def fill(image: images.Image, digest: str = DIGEST, hide: tuple[str, ...] = (), where: str = "live") -> list[str]:
    live = lives.Live(str(image.root / where), False, -1)
    return [f.code for f in filling.fill(live, digest, images.SET, [j for j in jobs(image) if j.kind.name not in hide], hide)]


def seen(image: images.Image, kind: str = "inductor") -> dict[str, bytes]:
    base = image.root / "live" / kind
    return {str(path.relative_to(base)): path.read_bytes() for path in base.rglob("*") if path.is_file()}


def test_files_are_links_directories_are_real_and_rewritten_files_are_copies(image: images.Image) -> None:
    assert fill(image) == []
    assert seen(image) == images.files("inductor")
    base = image.root / "live" / "inductor"
    linked = {str(path.relative_to(base)) for path in base.rglob("*") if path.is_symlink()}
    assert linked == set(images.files("inductor")) - {"log/state.txt"}
    assert (base / "locks").is_dir()
    assert not any((base / "locks").iterdir())
    modes = {stat.S_IMODE(path.stat().st_mode) for path in base.rglob("*") if path.is_dir()}
    assert modes == {0o775}, "writable for group 0"
    assert stat.S_IMODE((base / "log/state.txt").stat().st_mode) == 0o664
    pristine = image.pristine("inductor") / "log/state.txt"
    assert (base / "log/state.txt").stat().st_mtime_ns == pristine.stat().st_mtime_ns


def test_the_umask_neither_limits_nor_changes(image: images.Image) -> None:
    before = os.umask(0o077)
    try:
        fill(image)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert stat.S_IMODE((image.root / "live" / "inductor" / "deep").stat().st_mode) == 0o775


def test_a_second_fill_repairs_and_keeps(image: images.Image) -> None:
    fill(image)
    base = image.root / "live" / "inductor"
    (base / "new.so").write_bytes(b"the server's own")
    (base / "locks" / "x.lock").write_bytes(b"")
    (base / "deep/er/than/rest.bin").unlink()
    (base / "deep/er/than/rest.bin").symlink_to("/nowhere")
    (base / "log/state.txt").write_bytes(b"damaged")
    entry = next(path for path in base.rglob("*.py"))
    wrong = entry.relative_to(base)
    entry.unlink()
    entry.write_bytes(b"not the baked content")
    same = next(path for path in base.rglob("*.so") if path.is_symlink())
    content = same.read_bytes()
    same.unlink()
    same.write_bytes(content)
    assert fill(image) == []
    expected = {**images.files("inductor"), "new.so": b"the server's own", "locks/x.lock": b""}
    assert seen(image) == expected
    assert not same.is_symlink(), "equal bytes may stay"
    stale = image.root / "live" / f".stale-{'1' * 12}" / "inductor"
    assert (stale / wrong).read_bytes() == b"not the baked content"
    assert (stale / "log/state.txt").read_bytes() == b"damaged"
    before = {path: path.lstat().st_mtime_ns for path in base.rglob("*")}
    assert fill(image) == []
    assert {path: path.lstat().st_mtime_ns for path in base.rglob("*")} == before, "nothing to repair, nothing touched"


def test_what_an_owner_may_change_stays_changed(image: images.Image) -> None:
    image.kind("inductor")["mutable"].append({"pattern": "log/*", "reason": "rewritten"})
    image.write_manifest()
    fill(image)
    (image.root / "live/inductor/log/state.txt").write_bytes(b"later state")
    fill(image)
    assert seen(image)["log/state.txt"] == b"later state"


def test_a_linked_directory_is_never_written_through(image: images.Image, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    live = image.root / "live"
    lives.write_stamp(str(live), DIGEST, images.SET)
    (live / "inductor" / "deep").symlink_to(outside)
    (live / "vllm").rmdir()
    (live / "vllm").symlink_to(outside)
    fill(image)
    assert seen(image) == images.files("inductor")
    assert seen(image, "vllm") == images.files("vllm")
    assert list(outside.iterdir()) == []
    stale = live / f".stale-{'1' * 12}"
    assert (stale / "inductor/deep").is_symlink()
    assert (stale / "vllm").is_symlink()


def test_another_image_moves_the_old_content_aside(image: images.Image) -> None:
    fill(image, OTHER)
    (image.root / "live/inductor/own.txt").write_text("mine")
    assert fill(image) == ["live-stale"]
    assert seen(image) == images.files("inductor")
    stale = image.root / "live" / f".stale-{'2' * 12}"
    assert (stale / "inductor/own.txt").read_text() == "mine"
    assert json.loads((image.root / "live/.baker.json").read_text()) == {"digest": DIGEST, "set": images.SET, "schema": 1}
    (image.root / "live/inductor/own.txt").write_text("mine too")
    assert fill(image, OTHER) == ["live-stale"]
    assert fill(image) == ["live-stale"]
    kept = [path.read_text() for path in (image.root / "live").glob(".stale-*/inductor/own.txt")]
    assert sorted(kept) == ["mine", "mine too"], "nothing that was set aside is replaced"


def test_a_hidden_kind_is_empty_and_its_old_content_kept(image: images.Image) -> None:
    fill(image)
    (image.root / "live/vllm/own").write_text("mine")
    assert fill(image, hide=("vllm",)) == ["live-set-aside"]
    assert list((image.root / "live/vllm").iterdir()) == []
    assert seen(image) == images.files("inductor")
    assert (image.root / "live" / f".stale-{'1' * 12}" / "vllm/own").read_text() == "mine"
    assert fill(image, hide=("vllm",)) == []


def test_file_and_directory_of_one_name_is_an_error_that_names_it(image: images.Image) -> None:
    image.kind("inductor")["directories"] = ["deep/er/than/rest.bin"]
    image.write_manifest()
    with pytest.raises(filling.FillError, match=r"rest\.bin is both a file and a directory"):
        fill(image)


def claim(path: Path, tmp: Path) -> tuple[str, bool, list[str]]:
    tmp.mkdir(exist_ok=True)
    live, findings = lives.claim(str(path), {"TMPDIR": str(tmp)})
    os.close(live.lock)
    return live.path, live.private, [f.message for f in findings]


def test_an_empty_or_stamped_live_is_claimed(image: images.Image, tmp_path: Path) -> None:
    live = image.root / "live"
    (live / "lost+found").mkdir()
    assert claim(live, tmp_path / "tmp") == (str(live), False, [])
    fill(image)
    assert claim(live, tmp_path / "tmp") == (str(live), False, [])


@pytest.mark.parametrize("case", ["absent", "file", "link", "foreign", "foreign-link", "bad-stamp"])
def test_an_unusable_live_is_left_alone_and_replaced_by_a_private_one(tmp_path: Path, case: str) -> None:
    live = tmp_path / "live"
    if case == "file":
        live.write_text("x")
    elif case == "link":
        (tmp_path / "real").mkdir()
        live.symlink_to(tmp_path / "real")
    elif case != "absent":
        (live / "d").mkdir(parents=True)
        (live / ".baker.json").write_text("[1]") if case == "bad-stamp" else None
        (live / "d" / "f").symlink_to("x") if case == "foreign-link" else (live / "d" / "f").write_text("mine")
    tmp = tmp_path / "tmp"
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    path, private, messages = claim(live, tmp)
    assert private
    assert path.startswith(str(tmp_path / "tmp" / "baker-live-"))
    assert len(messages) == 1
    words = {"absent": "No such file", "file": "not a directory", "link": "not a directory"}.get(case, "did not put there")
    assert words in messages[0]
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o700
    assert sorted(str(p) for p in tmp_path.rglob("*") if tmp not in (p, *p.parents)) == before


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@needs_root
def test_a_live_of_another_user_is_told_with_owner_mode_and_own_id() -> None:
    """O-47."""
    with users.open_directory() as directory:
        live = directory / "live"
        live.mkdir(mode=0o755)
        (directory / "tmp").mkdir()
        (directory / "tmp").chmod(0o1777)
        path, private, messages = users.in_child(lambda: claim(live, directory / "tmp"), uid=2000, gid=2000)
    assert private
    assert path.startswith(str(directory / "tmp"))
    assert f"{live} is not writable: owner 0:0, mode 0755; this process runs as 2000:2000" in messages[0]


@needs_root
def test_an_arbitrary_user_of_group_0_fills_the_image_s_own_live() -> None:
    """O-03: OpenShift's user ids."""
    with users.open_directory() as directory:
        image = images.make(directory / "image")
        for path in (image.root / "live", *(image.root / "live").iterdir()):
            path.chmod(0o775)

        def run() -> list[object]:
            live, findings = lives.claim(str(image.root / "live"), {"TMPDIR": "/tmp"})
            return [live.private, [f.code for f in findings + filling.fill(live, DIGEST, images.SET, jobs(image), ())]]

        assert users.in_child(run, uid=1000800000, gid=0) == [False, []]
        assert seen(image) == images.files("inductor")
        assert (image.root / "live/inductor/deep").stat().st_uid == 1000800000


def test_two_starts_take_turns(image: images.Image, tmp_path: Path) -> None:
    held = os.open(image.root / "live" / lives.LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    got: list[tuple[str, bool, list[str]]] = []
    second = threading.Thread(target=lambda: got.append(claim(image.root / "live", tmp_path / "tmp")))
    second.start()
    second.join(0.3)
    assert second.is_alive()
    assert not got
    os.close(held)
    second.join(5)
    assert got == [(str(image.root / "live"), False, [])]


@needs_root
def test_no_temporary_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"UnusableError: no writable temporary directory \(looked at /x, /tmp"):
        users.in_child(lambda: str(lives.claim("/none", {"TMPDIR": "/x"})), root=str(tmp_path))


def test_variables_move_with_live() -> None:
    env = {"A": "/opt/baker/live/a", "B": "/opt/baker/lively", "C": "/elsewhere", "E": "/opt/baker/live"}
    pins = {"A": "/opt/baker/live/a", "C": "/opt/baker/live/c", "D": "/opt/baker/live/d"}
    moved, changed = filling.move_variables(env, pins, "/opt/baker/live", "/tmp/p")
    assert moved == {"A": "/tmp/p/a", "D": "/tmp/p/d", "E": "/tmp/p"}
    assert changed == ["A", "D", "E"]
    assert filling.move_variables(env, pins, "/opt/baker/live", "/opt/baker/live") == (
        {"A": "/opt/baker/live/a", "D": "/opt/baker/live/d", "E": "/opt/baker/live"},
        ["D"],
    )
