"""The command line of `start`: usage, policies, exit codes, the process that the server gets, and its own bugs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from baker.inside import start as entry
from baker.pack.zips import start_zip
from tests.bad import images, users
from tests.bad.starts import environment, start


@pytest.fixture
def image(tmp_path: Path) -> Iterator[images.Image]:
    made = images.make(tmp_path / "image", zip_data=start_zip())
    yield made
    made.thaw()


def test_the_server_has_the_same_process_and_default_signals(image: images.Image) -> None:
    command = [sys.executable, "-I", "-S", str(image.root / "start"), "--", "/bin/sh", "-c", "echo $$; exec grep -E 'Sig(Ign|Blk)' /proc/self/status"]
    with subprocess.Popen(command, env=environment(image), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        words = process.communicate(timeout=30)[0].split()
    assert words[:3] == [str(process.pid), "SigBlk:", "0" * 16]
    # Signals 32 and 33 are the C library's own; GNU make hands them on ignored.
    # What `nohup make test &` ignores is handed on, and is not start's doing.
    terminal = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    handed = sum(1 << (number - 1) for number in terminal if signal.getsignal(number) is signal.SIG_IGN)
    assert int(words[4], 16) & ~(1 << 31 | 1 << 32 | handed) == 0


def test_policy_off_starts_at_once_and_looks_at_nothing(image: images.Image) -> None:
    (image.root / "manifest.json").write_text("{")
    result = start(image, BAKER_POLICY="off")
    assert result.server is not None
    assert result.server["files"] == {"VLLM_CACHE_ROOT": [], "TORCHINDUCTOR_CACHE_DIR": []}
    assert result.line["baker"] == "cold"
    assert "live-not-empty" not in result.stderr
    (image.root / "live" / "vllm" / "left").write_text("x")
    assert "soft image live-not-empty" in start(image, BAKER_POLICY="off").stderr


@pytest.mark.parametrize(
    ("options", "env", "words"),
    [
        ((), {}, "no --, expected -- and the server's command"),
        (("--",), {}, "nothing after --"),
        (("--chekc", "--", "x"), {}, "found '--chekc' before --, expected --check"),
        (("--", "x"), {"BAKER_POLICY": "lenient"}, "BAKER_POLICY: found 'lenient', expected one of auto, strict, off"),
        (("--", "x"), {"BAKER_VERIFY": "some"}, "BAKER_VERIFY: found 'some', expected one of sizes, code, full"),
        (("--", "x"), {"BAKER_VERIFY_SECONDS": "0"}, "BAKER_VERIFY_SECONDS: found '0', expected a positive number"),
        (("--", "x"), {"BAKER_VERIFY_SECONDS": "inf"}, "BAKER_VERIFY_SECONDS: found 'inf'"),
    ],
)
def test_wrong_usage_is_102(image: images.Image, options: tuple[str, ...], env: dict[str, str], words: str) -> None:
    result = users.run_main(entry.main, [str(image.root / "start"), *options], environment(image, **env), image.root)
    assert result.returncode == 102, result.stderr
    assert words in result.stderr
    assert ("usage: start" in result.stderr) == (not env)


@pytest.mark.parametrize("command", ["no-such-server", "/no/such/server", "{root}/manifest.json"])
def test_a_missing_server_is_103(image: images.Image, command: str) -> None:
    result = start(image, command.format(root=image.root))
    assert result.code == 103
    assert "not found" in result.stderr
    assert list((image.root / "live" / "vllm").iterdir()) == [], "nothing was touched"


def test_a_file_that_is_no_program_is_103(image: images.Image) -> None:
    bad = image.root.parent / "bad"
    bad.write_bytes(b"\x00\x01 no program")
    bad.chmod(0o755)
    result = start(image, str(bad))
    assert result.code == 103
    assert "cannot be started" in result.stderr


def test_the_image_s_own_bin_directory_does_not_lead_back_to_start(image: images.Image) -> None:
    shim, real = image.root / "bin" / "server", image.root.parent / "real" / "server"
    for path, code in ((shim, 55), (real, 7)):
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
    path_variable = f"{shim.parent}:{real.parent}"
    assert start(image, "server", PATH=path_variable).code == 7
    assert start(image, str(shim), PATH=path_variable).code == 7
    assert start(image, "server", PATH=str(shim.parent)).code == 103


def test_version_help_and_check(image: images.Image) -> None:
    def run(*options: str, **env: str) -> tuple[int, str]:
        result = start(image, options=options, shipped="--version" in options, **env)
        return result.code, result.stdout

    assert run("--version")[1].startswith("baker start 0.")
    assert "usage: start" in run("--help")[1]
    code, out = run("--check", "--", *image.argv)
    assert code == 0
    assert json.loads(out)["baker"] == "compatible"
    code, out = run("--check")
    assert code == 0
    assert [f["code"] for f in json.loads(out)["details"]] == ["arguments-not-given"]
    image.thaw()
    images.flipped_byte(image)
    code, out = run("--check", "--", *image.argv)
    assert code == 10
    assert json.loads(out)["hidden"] == {"inductor": ["file-damaged"]}
    assert run("--check", BAKER_MANIFEST_DIGEST="(unset)")[0] == 11
    assert not any((image.root / "live" / "vllm").iterdir()), "a check fills nothing"


def test_the_status_file_falls_back(image: images.Image) -> None:
    result = start(image, BAKER_STATUS=str(image.root / "manifest.json" / "status.json"))
    assert result.line["status"] == str(image.root.parent / "tmp" / "baker-status.json")
    assert json.loads(Path(result.line["status"]).read_text())["baker"] == "compatible"


def test_an_unproven_image_says_so(image: images.Image) -> None:
    image.document["unproven"] = True
    image.write_manifest()
    assert "soft image unproven" in start(image).stderr


def test_a_reader_that_left_does_not_keep_the_server_from_starting(image: images.Image) -> None:
    command = [sys.executable, "-I", "-S", str(image.root / "start"), "--", *image.argv]
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(command, env=environment(image), stdout=subprocess.PIPE, stderr=write, text=True, check=False)
    finally:
        os.close(write)
    assert done.returncode == 0
    assert json.loads(done.stdout)["files"]["VLLM_CACHE_ROOT"]
    quoted = " ".join(f"'{word}'" for word in command)
    closed = subprocess.run(["sh", "-c", f"exec {quoted} 2>&-"], env=environment(image), stdout=subprocess.PIPE, text=True, check=False)
    assert closed.returncode == 0
    assert '"pid"' in closed.stdout


def with_planted_bug(data: bytes) -> bytes:
    """The start zip with a function that raises what nobody expects."""
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            code = source.read(name)
            if name.startswith("baker/inside/pristine.py"):
                if name.endswith("c"):
                    continue
                code += b"\n\ndef survey(*args):\n    raise KeyError('planted')\n"
            target.writestr(name, code)
    return out.getvalue()


def test_a_bug_of_ours_starts_the_server_cold_or_refuses(image: images.Image) -> None:
    start(image)  # fills live
    (image.root / "start").write_bytes(with_planted_bug((image.root / "start").read_bytes()))
    result = start(image, shipped=True)
    assert result.code == 0
    assert result.server is not None
    assert result.server["files"] == {"VLLM_CACHE_ROOT": [], "TORCHINDUCTOR_CACHE_DIR": []}
    assert "KeyError: 'planted'" in result.stderr
    assert "COLD" in result.stderr
    strict = start(image, shipped=True, BAKER_POLICY="strict")
    assert strict.code == 101
    assert "planted" in (image.root.parent / "termination-log").read_text()


def test_the_zip_needs_nothing_but_a_bare_interpreter(image: images.Image) -> None:
    names = zipfile.ZipFile(BytesIO((image.root / "start").read_bytes())).namelist()
    assert {"__main__.py", "baker/__init__.py", "baker/inside/start.py"} <= set(names)
    assert not any("driver" in name or "recorder" in name for name in names)
