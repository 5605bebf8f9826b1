"""`start` as it ships: the zip under `python -I -S`, a damaged image by name, the three policies, the exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from baker.inside import decide, settings
from baker.inside import start as entry
from baker.pack.zips import start_zip
from tests.bad import images, users


@pytest.fixture(scope="module")
def zip_data() -> bytes:
    return start_zip()


@pytest.fixture
def image(tmp_path: Path, zip_data: bytes) -> Iterator[images.Image]:
    made = images.make(tmp_path / "image", zip_data=zip_data)
    yield made
    made.thaw()


class Result:
    """A finished start: exit code, what the server said (None when it was not started), stderr, the structured line, the status file."""

    def __init__(self, done: subprocess.CompletedProcess[str], status: Path) -> None:
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        self.server = json.loads(done.stdout) if done.stdout.startswith('{"pid"') else None
        self.line: dict[str, Any] = images.findings(done.stderr) if '{"baker"' in done.stderr else {}
        self.status: dict[str, Any] = json.loads(status.read_text()) if status.exists() else {}


def environment(image: images.Image, **extra: str) -> dict[str, str]:
    home = image.root.parent / "home"
    home.mkdir(exist_ok=True)
    (image.root.parent / "tmp").mkdir(exist_ok=True)
    base = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(image.root.parent / "tmp"),
        "BAKER_STATUS": str(image.root.parent / "status.json"),
        "BAKER_TERMINATION_LOG": str(image.root.parent / "termination-log"),
    }
    return {name: value for name, value in {**base, **image.environ, **extra}.items() if value != "(unset)"}


def start(image: images.Image, *argv: str, options: tuple[str, ...] = ("--",), shipped: bool = False, **env: str) -> Result:
    """Run start: the same code in a forked child, or with `shipped` the zip under a bare interpreter, as an image does."""
    status = image.root.parent / "status.json"
    status.unlink(missing_ok=True)
    words = [str(image.root / "start"), *options, *(argv or (image.argv if options == ("--",) else ()))]
    environ = environment(image, **env)
    if shipped:
        command = [sys.executable, "-I", "-S", *words]
        done = subprocess.run(
            command, env=environ, cwd=image.root.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30
        )
    else:
        done = users.run_main(entry.main, words, environ, image.root.parent)
    return Result(done, status)


def test_a_good_image_is_shown_whole_and_the_server_takes_over_the_process(image: images.Image) -> None:
    (image.root.parent / "json.py").write_text("raise SystemExit(99)\n")  # in the working directory: must not be imported
    result = start(image, shipped=True)
    assert result.code == 0 and result.server is not None, result.stderr
    assert result.server["argv"] == ["--model", "tiny", "--max-model-len", "4096"]
    assert result.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == sorted(images.files("inductor"))
    assert (result.line["baker"], result.line["shown"], result.line["hidden"]) == ("compatible", ["vllm", "inductor"], {})
    assert "warm" not in result.stderr, "start says compatible; only a measurement says warm"
    assert result.status["manifest"] == image.environ["BAKER_MANIFEST_DIGEST"] and result.status["kinds"]["vllm"]["files"] == 8


def test_the_server_has_the_same_process_and_default_signals(image: images.Image) -> None:
    command = [sys.executable, "-I", "-S", str(image.root / "start"), "--", "/bin/sh", "-c", "echo $$; exec grep -E 'Sig(Ign|Blk)' /proc/self/status"]
    with subprocess.Popen(command, env=environment(image), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        words = process.communicate(timeout=30)[0].split()
    assert words == [str(process.pid), "SigBlk:", "0" * 16, "SigIgn:", "0" * 16]


@pytest.mark.parametrize("damage", images.OF_A_KIND, ids=lambda f: f.__name__)
def test_damage_to_a_kind_is_named_and_hides_that_kind_only(image: images.Image, damage: Callable[[images.Image], tuple[str, str]]) -> None:
    image.thaw()
    code, name = damage(image)
    strict = start(image, BAKER_POLICY="strict")
    assert (strict.code, strict.server) == (107, None)
    assert list((image.root / "live" / "vllm").iterdir()) == [], "strict fills nothing"
    reason = (image.root.parent / "termination-log").read_text()
    auto = start(image)
    assert auto.code == 0 and auto.server is not None, auto.stderr
    assert auto.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == []
    assert auto.server["files"]["VLLM_CACHE_ROOT"] == sorted(images.files("vllm"))
    assert (auto.line["baker"], auto.line["shown"], auto.line["hidden"]) == ("partly", ["vllm"], {"inductor": [code]})
    for text in (auto.stderr, strict.stderr, reason):
        assert any(line for line in text.splitlines() if f"inductor {code}" in line and name in line), text


@pytest.mark.parametrize("damage", images.OF_THE_IMAGE, ids=lambda f: f.__name__)
def test_damage_to_the_image_hides_every_kind(image: images.Image, damage: Callable[[images.Image], tuple[str, str]]) -> None:
    start(image)  # live is full from a start before the damage
    code, name = damage(image)
    strict = start(image, BAKER_POLICY="strict")
    assert (strict.code, strict.server) == (107, None)
    auto = start(image)
    assert auto.code == 0 and auto.server is not None, auto.stderr
    assert auto.server["files"] == {"VLLM_CACHE_ROOT": [], "TORCHINDUCTOR_CACHE_DIR": []}
    assert auto.line["baker"] == "cold" and "COLD" in auto.stderr
    for text in (auto.stderr, strict.stderr, (image.root.parent / "termination-log").read_text()):
        assert any(line for line in text.splitlines() if code in line and name in line), text


def found(image: images.Image, level: str) -> set[str]:
    """Paths that a check at `level` names in kind inductor."""
    chosen = settings.parse([str(image.root / "start"), "--check"], {**image.environ, "BAKER_VERIFY": level})
    return {damage.path for damage in decide.decide(chosen).verdict.damage.get("inductor", ())}


def test_a_flipped_byte_is_found_in_every_file_at_full_and_in_all_but_inert_ones_at_code(image: images.Image) -> None:
    image.thaw()
    paths = set(images.files("inductor"))
    inert = {path for path in paths if path.endswith(".cpp")}
    for path in sorted(paths):
        images.flip(image.pristine("inductor") / path, len(path))
        assert found(image, "full") == {path}
        assert found(image, "code") == ({path} - inert)
        images.flip(image.pristine("inductor") / path, len(path))
    for path in paths:
        images.flip(image.pristine("inductor") / path)
    assert found(image, "full") == paths and found(image, "code") == paths - inert and inert
    assert found(image, "sizes") == set()


def test_the_status_file_lists_every_damaged_path(image: images.Image) -> None:
    image.thaw()
    for i in range(30):
        (image.pristine("vllm") / f"extra{i}").write_text("x")
    result = start(image)
    assert len(result.status["kinds"]["vllm"]["damage"]) == 30 and "22 more paths differ" in result.stderr


def test_a_flag_that_differs_is_said_before_the_server_runs(image: images.Image) -> None:
    """O-04."""
    result = start(image, *image.argv[:-1], "1024", "--port", "1", "--seed", "7")
    assert result.server is not None and result.server["files"]["VLLM_CACHE_ROOT"] == []
    assert result.line["baker"] == "cold" and result.line["hidden"] == {"vllm": ["argument-differs"], "inductor": ["argument-differs"]}
    assert "--max-model-len differs from the bake (got 1024, expected 4096): serve with --max-model-len 4096" in result.stderr
    assert "soft image argument-differs: --seed differs, neutral (got 7, expected absent)" in result.stderr and "--port" not in result.stderr


def test_variables_are_compared_and_secrets_never_shown(image: images.Image) -> None:
    """O-02, O-53."""
    result = start(
        image, *image.argv, "--api-key", "sk-TESTSECRET", "--hf-token", "hf_TESTSECRET", VLLM_API_KEY="TESTSECRET", VLLM_LOOPBACK_IP="10.0.0.7"
    )
    assert "VLLM_LOOPBACK_IP differs from the bake (got 10.0.0.7, expected unset)" in result.stderr
    assert "VLLM_API_KEY differs" in result.stderr and "--hf-token differs" in result.stderr
    assert "TESTSECRET" not in result.stderr + json.dumps(result.status)
    assert result.line["baker"] == "cold"


def test_policy_off_starts_at_once_and_looks_at_nothing(image: images.Image) -> None:
    (image.root / "manifest.json").write_text("{")
    result = start(image, BAKER_POLICY="off")
    assert result.server is not None and result.server["files"] == {"VLLM_CACHE_ROOT": [], "TORCHINDUCTOR_CACHE_DIR": []}
    assert result.line["baker"] == "cold" and "live-not-empty" not in result.stderr
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
    assert result.returncode == 102 and words in result.stderr, result.stderr
    assert ("usage: start" in result.stderr) == (not env)


@pytest.mark.parametrize("command", ["no-such-server", "/no/such/server", "{root}/manifest.json"])
def test_a_missing_server_is_103(image: images.Image, command: str) -> None:
    result = start(image, command.format(root=image.root))
    assert result.code == 103 and "not found" in result.stderr
    assert list((image.root / "live" / "vllm").iterdir()) == [], "nothing was touched"


def test_a_file_that_is_no_program_is_103(image: images.Image) -> None:
    bad = image.root.parent / "bad"
    bad.write_bytes(b"\x00\x01 no program")
    bad.chmod(0o755)
    result = start(image, str(bad))
    assert result.code == 103 and "cannot be started" in result.stderr


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

    assert run("--version")[1].startswith("baker start 0.") and "usage: start" in run("--help")[1]
    code, out = run("--check", "--", *image.argv)
    assert code == 0 and json.loads(out)["baker"] == "compatible"
    code, out = run("--check")
    assert code == 0 and [f["code"] for f in json.loads(out)["details"]] == ["arguments-not-given"]
    image.thaw()
    images.flipped_byte(image)
    code, out = run("--check", "--", *image.argv)
    assert code == 10 and json.loads(out)["hidden"] == {"inductor": ["file-damaged"]}
    assert run("--check", BAKER_MANIFEST_DIGEST="(unset)")[0] == 11
    assert not any((image.root / "live" / "vllm").iterdir()), "a check fills nothing"


def test_a_foreign_live_is_left_alone_and_the_variables_move(image: images.Image) -> None:
    """O-09, second part: a volume with somebody's files where live is."""
    image.kind("vllm")["path_bound"] = True
    image.write_manifest()
    (image.root / "live" / "old").write_text("mine")
    result = start(image)
    assert result.server is not None
    private = result.line["live"]
    assert private.startswith(str(image.root.parent / "tmp" / "baker-live-"))
    assert result.server["roots"] == {"VLLM_CACHE_ROOT": f"{private}/vllm", "TORCHINDUCTOR_CACHE_DIR": f"{private}/inductor"}
    assert result.server["files"] == {"VLLM_CACHE_ROOT": [], "TORCHINDUCTOR_CACHE_DIR": sorted(images.files("inductor"))}
    assert result.line["hidden"] == {"vllm": ["path-bound"]} and "live-private" in result.stderr
    assert (image.root / "live" / "old").read_text() == "mine" and not (image.root / "live" / ".baker.json").exists()
    assert start(image, BAKER_POLICY="strict").code == 107


def test_an_image_at_another_root_works_but_for_path_bound_kinds(image: images.Image) -> None:
    image.kind("vllm")["path_bound"] = True
    image.write_manifest()
    image.thaw()
    image.root = image.root.rename(image.root.parent / "moved")
    result = start(image)
    assert result.server is not None and result.line["hidden"] == {"vllm": ["path-bound"]} and "root-moved" in result.stderr
    assert result.server["roots"]["TORCHINDUCTOR_CACHE_DIR"] == str(image.root / "live" / "inductor")
    assert result.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == sorted(images.files("inductor"))


def test_variables_of_the_pod_win_and_are_said(image: images.Image) -> None:
    result = start(image, TORCHINDUCTOR_CACHE_DIR=str(image.root.parent / "tmp"), VLLM_CACHE_ROOT="(unset)")
    assert result.server is not None and result.server["roots"]["TORCHINDUCTOR_CACHE_DIR"] == str(image.root.parent / "tmp")
    assert result.server["files"]["VLLM_CACHE_ROOT"] == sorted(images.files("vllm")), "a pin that the pod lost is set again"
    assert (result.line["baker"], result.line["elsewhere"]) == ("partly", ["inductor"]) and "variable-elsewhere" in result.stderr


@pytest.mark.parametrize("home", ["(unset)", "/", "/nonexistent/home", "relative"])
def test_a_home_that_cannot_be_written_is_replaced(image: images.Image, home: str) -> None:
    result = start(image, HOME=home)
    assert result.server is not None and result.server["home"].startswith(str(image.root.parent / "tmp" / "baker-home-"))
    assert "soft image home-set" in result.stderr and result.line["baker"] == "compatible"


def test_a_second_start_finds_its_own_live_and_hides_what_no_longer_fits(image: images.Image) -> None:
    assert start(image).line["baker"] == "compatible"
    assert start(image).line["live"] == str(image.root / "live")
    image.thaw()
    images.missing_file(image)
    result = start(image)
    assert result.server is not None and result.server["files"]["TORCHINDUCTOR_CACHE_DIR"] == [] and "live-set-aside" in result.stderr


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
    assert done.returncode == 0 and json.loads(done.stdout)["files"]["VLLM_CACHE_ROOT"]
    quoted = " ".join(f"'{word}'" for word in command)
    closed = subprocess.run(["sh", "-c", f"exec {quoted} 2>&-"], env=environment(image), stdout=subprocess.PIPE, text=True, check=False)
    assert closed.returncode == 0 and '"pid"' in closed.stdout


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


def test_a_bug_of_ours_starts_the_server_cold_or_refuses(image: images.Image, zip_data: bytes) -> None:
    start(image)  # fills live
    (image.root / "start").write_bytes(with_planted_bug(zip_data))
    result = start(image, shipped=True)
    assert result.code == 0 and result.server is not None and result.server["files"] == {"VLLM_CACHE_ROOT": [], "TORCHINDUCTOR_CACHE_DIR": []}
    assert "KeyError: 'planted'" in result.stderr and "COLD" in result.stderr
    strict = start(image, shipped=True, BAKER_POLICY="strict")
    assert strict.code == 101 and "planted" in (image.root.parent / "termination-log").read_text()


def test_the_zip_needs_nothing_but_a_bare_interpreter(image: images.Image) -> None:
    assert shutil.which("python3")
    names = zipfile.ZipFile(BytesIO((image.root / "start").read_bytes())).namelist()
    assert {"__main__.py", "baker/__init__.py", "baker/inside/start.py"} <= set(names)
    assert not any("driver" in name or "recorder" in name for name in names)
