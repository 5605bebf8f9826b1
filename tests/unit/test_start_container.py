"""`start` in the situations of a container: arbitrary users, mounts, the first process of a namespace, slow disks, no place to write."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from baker.inside import settings
from baker.inside import start as entry
from baker.pack.zips import start_zip
from tests.bad import images, users

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user or mount")


def can(*command: str) -> bool:
    return os.getuid() == 0 and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0


def run_as(image: images.Image, uid: int, gid: int, **env: str) -> str:
    """What start and the server (a shell that tells HOME, the number of files and its id) print when run as uid:gid."""
    argv = [str(image.root / "start"), "--", "/bin/sh", "-c", 'echo "HOME=$HOME"; find "$TORCHINDUCTOR_CACHE_DIR/" -name "*.so" | wc -l; id -u']
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(image.root.parent / "tmp"), **image.environ, **env}
    done = users.run_main(entry.main, argv, environment, Path("/"), uid=uid, gid=gid)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def baked_for_shell(directory: Path) -> images.Image:
    image = images.make(directory / "image")
    image.document["sets"][0]["serve"] = {"program": ["/bin/sh"], "argv": [], "env": {}}
    image.document["sets"][0]["neutral"] = {}
    image.write_manifest()
    (directory / "tmp").mkdir()
    (directory / "tmp").chmod(0o1777)
    return image


@needs_root
def test_an_arbitrary_user_of_group_0_without_home_or_passwd_entry() -> None:
    """O-03."""
    with users.open_directory() as directory:
        image = baked_for_shell(directory)
        for path in (image.root / "live", *(image.root / "live").iterdir()):
            path.chmod(0o775)
        text = run_as(image, 1000800000, 0)
    assert f"HOME={directory}/tmp/baker-home-" in text
    assert "1000800000" in text
    assert '"baker": "compatible"' in text
    assert f'"live": "{image.root}/live"' in text
    assert not any(path in text for path in (" /.cache", " /.triton", " /.config"))


@needs_root
def test_a_live_of_root_gives_another_user_a_private_one() -> None:
    """O-47: the baked caches are still used, read-only."""
    with users.open_directory() as directory:
        image = baked_for_shell(directory)
        (image.root / "live").chmod(0o755)
        text = run_as(image, 2000, 2000, HOME="/")
    assert f"{image.root}/live is not writable: owner 0:0, mode 0755; this process runs as 2000:2000" in text
    assert f'"live": "{directory}/tmp/baker-live-' in text
    assert '"baker": "compatible"' in text
    assert "\n2\n2000\n" in text, "the server sees the two baked libraries"


@needs_root
def test_a_file_that_this_user_may_not_read_hides_its_kind() -> None:
    with users.open_directory() as directory:
        image = baked_for_shell(directory)
        image.thaw()
        code, inert = (next(e["path"] for e in image.kind(k)["files"] if e["role"] == r) for k, r in (("vllm", "code"), ("inductor", "inert")))
        (image.pristine("vllm") / str(code)).chmod(0o400)
        (image.pristine("inductor") / str(inert)).chmod(0o400)
        (image.root / "live").chmod(0o777)
        text = run_as(image, 2000, 2000)
    assert '"baker": "cold"' in text
    assert f"hard vllm file-unreadable: {code} (got cannot be opened: Permission denied, expected a readable file)" in text
    assert f"hard inductor file-unreadable: {inert} (got may not be read by this user" in text


@needs_root
def test_no_place_to_write_is_cold_when_live_is_empty_and_103_when_it_is_not() -> None:
    with users.open_directory() as directory:
        image = images.make(directory / "opt" / "baker")
        (image.root / "live").chmod(0o755)
        document = json.loads((image.root / "manifest.json").read_text())
        document["root"] = "/opt/baker"
        image.document = document
        image.write_manifest()

        def run() -> list[Any]:
            chosen = settings.parse(["/opt/baker/start", "--", "/server"], dict(image.environ))
            try:
                ready = entry._prepare(chosen, 0.0)
            except settings.StartError as error:
                return [error.code, str(error)]
            return [ready.verdict.word, [f.code for f in ready.verdict.hard if not f.kind]]

        assert users.in_child(run, uid=2000, gid=2000, root=str(directory)) == ["cold", ["no-live"]]
        (image.root / "live" / "left").write_text("x")
        code, text = users.in_child(run, uid=2000, gid=2000, root=str(directory))
        assert code == 103
        assert "is not empty" in text
        assert "set TMPDIR" in text


@pytest.mark.skipif(not can("unshare", "-m"), reason="needs root and mount namespaces")
@pytest.mark.parametrize("where", ["sets", "sets/cpu", "sets/cpu/inductor"])
def test_a_mount_over_pristine_is_named_as_such(tmp_path: Path, where: str) -> None:
    """O-09."""
    image = images.make(tmp_path / "image", zip_data=start_zip())
    mount = image.root / where
    script = 'mount -t tmpfs none "$1" && shift && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(mount), sys.executable, "-I", "-S", str(image.root / "start"), "--", *image.argv]
    env = {**image.environ, "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "BAKER_STATUS": str(tmp_path / "s")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    hidden = users.structured_line(done.stderr)["hidden"]
    assert hidden == {kind: ["hidden-by-mount"] for kind in (["inductor"] if where.endswith("inductor") else ["vllm", "inductor"])}
    assert f"hidden by the mount at {mount} (got 0 of 8 files, expected all)" in done.stderr
    assert json.loads(done.stdout)["files"]["TORCHINDUCTOR_CACHE_DIR"] == []
    image.thaw()


def slow_image(directory: Path) -> images.Image:
    """An image with one sparse file that takes many seconds to hash."""
    image = images.make(directory / "image", kinds=("inductor",), zip_data=start_zip())
    image.thaw()
    size = 64 << 30
    with (image.pristine("inductor") / "big.so").open("wb") as file:
        file.truncate(size)
    image.kind("inductor")["files"].append({"path": "big.so", "size": size, "sha256": hashlib.sha256(b"").hexdigest()})
    image.write_manifest()
    return image


PREFIXES = [pytest.param((), id="plain"), pytest.param(("unshare", "-p", "-f", "--kill-child"), id="first-process-of-a-container")]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_term_during_verification_ends_start_within_a_second(tmp_path: Path, prefix: tuple[str, ...]) -> None:
    """O-46. A first process has no default action for TERM: without a handler it would be deaf."""
    if prefix and not can(*prefix):
        pytest.skip("needs root and pid namespaces")
    image = slow_image(tmp_path)
    env = {**image.environ, "PATH": os.environ["PATH"], "HOME": str(tmp_path), "BAKER_STATUS": str(tmp_path / "s")}
    command = [*prefix, sys.executable, "-I", "-S", str(image.root / "start"), "--", *image.argv]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stderr
        assert "checking 9 files of set cpu (code, at most 600 s)" in process.stderr.readline()
        pid = process.pid
        if prefix:
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        begin = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        out, err = process.communicate(timeout=10)
        assert time.monotonic() - begin < 1.0
    assert process.returncode == 143
    assert "ended by signal 15" in err
    assert out == ""


def test_verification_is_bounded_and_shows_progress(tmp_path: Path) -> None:
    """O-46: what was not verified in time is hidden, and the server starts."""
    image = slow_image(tmp_path)
    env = {**image.environ, "PATH": os.environ["PATH"], "HOME": str(tmp_path), "BAKER_STATUS": str(tmp_path / "s"), "BAKER_VERIFY_SECONDS": "2.3"}
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(image.root / "start"), "--", *image.argv], env=env, capture_output=True, text=True, check=True, timeout=30
    )
    assert time.monotonic() - begin < 6
    assert "checked 6 of 7 files" in done.stderr, done.stderr
    assert "hard inductor file-unreadable: big.so (got not read within the 2.3 s of BAKER_VERIFY_SECONDS" in done.stderr
    assert json.loads(done.stdout)["files"]["TORCHINDUCTOR_CACHE_DIR"] == []
