"""The frame of the command line: exit codes, error rendering, did-you-mean, masking, signals, progress."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest

from baker import __version__, errors
from baker.cli import COMMANDS, run
from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.cli.progress import Reporter, table
from baker.cli.render import exit_code_of

ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])}


def baker(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "baker", *args], env={**ENV, **env}, capture_output=True, text=True, timeout=60, check=False)


def test_version_help_and_every_command_loads(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"baker {__version__}\n"
    assert run([]) == run(["--help"]) == run(["-h"]) == 0
    one, two, three = capsys.readouterr().out.split("Usage:")[1:]
    assert one == two == three
    for name in COMMANDS:
        assert f"\n  {name} " in one
        assert run([name, "--help"]) == 0


def test_a_command_is_imported_only_when_called() -> None:
    code = "import sys, baker.cli; baker.cli.run(['profiles', 'list']); print([m for m in ('huggingface_hub', 'rich', 'isal') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], env=ENV, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["profils"], "unknown-command", "did you mean baker profiles?"),
        (["profiles", "lits"], "unknown-command", "did you mean baker profiles list?"),
        (["profiles", "list", "--jsno"], "unknown-option", "did you mean --json?"),
        (["profiles", "show"], "usage", "NAME"),
        (["profiles", "list", "stray"], "usage", "stray"),
        (["profiles"], "usage", "Missing command"),
        (["profiles", "show", "smok"], "unknown-profile", "did you mean smoke?"),
        (["profiles", "validate", "gone.yaml"], "profile-missing", "no such file"),
        (["--josn"], "unknown-option", "--josn"),
    ],
)
def test_usage_errors(capsys: pytest.CaptureFixture[str], args: list[str], code: str, words: str) -> None:
    assert run(args) == 2
    plain = capsys.readouterr()
    assert words in plain.err
    assert not plain.out
    assert run([*args, "--json"]) == 2
    document = json.loads(capsys.readouterr().out)["error"]
    assert document["code"] == (code if len(args) > 1 or args[0] == "profils" else "unknown-option")  # groups themselves take no --json
    assert set(document) == {"code", "exit", "message", "found", "expected", "remedy", "retryable", "details"}


def fails(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError("x"), 2),
        (errors.MachineError("x"), 3),
        (errors.WarmupError("x"), 4),
        (errors.ArtifactError("x"), 5),
        (errors.RegistryError("x"), 6),
        (errors.Interrupted(signal.SIGTERM, "x"), 143),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.FileError("x"), 2),
    ],
)
def test_exit_codes(capsys: pytest.CaptureFixture[str], error: BaseException, code: int) -> None:
    assert exit_code_of(lambda: fails(error), as_json=False) == code
    assert capsys.readouterr().err.startswith("baker: ")
    assert exit_code_of(lambda: fails(error), as_json=True) == code
    assert json.loads(capsys.readouterr().out)["error"]["exit"] == code


def test_results_decide_the_exit_code() -> None:
    assert [exit_code_of(lambda result=result: result, as_json=False) for result in (None, 0, 3, "text")] == [0, 0, 3, 0]  # type: ignore[misc]


def test_a_bug_keeps_its_traceback_and_masks_secrets(tmp_path: Path) -> None:
    secret = "sosecretsosecret"
    code = "import sys; from baker.cli.render import exit_code_of as e; sys.argv += ['--api-key', 'argumentsecret']\n"
    code += f"e(lambda: {{}}['{secret}'], as_json=False)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**ENV, "XDG_STATE_HOME": str(tmp_path), "MY_TOKEN": secret},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    (crash,) = (tmp_path / "baker").iterdir()
    assert str(crash) in done.stderr
    text = crash.read_text()
    assert "KeyError: '***'" in text
    assert crash.stat().st_mode & 0o777 == 0o600
    for value in (secret, "argumentsecret"):
        assert value not in text + done.stderr


def test_a_bug_without_any_writable_place_still_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = "from baker.cli.render import exit_code_of as e; raise SystemExit(e(lambda: 1 / 0, as_json=False))"
    code = f"import tempfile; tempfile.tempdir = {str(tmp_path / 'file')!r}\n" + code
    done = subprocess.run(
        [sys.executable, "-c", code], env={**ENV, "XDG_STATE_HOME": str(tmp_path / "file")}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


def test_secrets_are_masked_in_error_messages() -> None:
    done = baker("profiles", "show", "hf_verysecretvalue", HF_TOKEN="hf_verysecretvalue")
    assert done.returncode == 2
    assert "hf_verysecretvalue" not in done.stdout + done.stderr
    assert "***" in done.stderr


def test_a_reader_that_leaves_is_no_error() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    process = subprocess.run(
        [sys.executable, "-m", "baker", "profiles", "list"], env=ENV, stdout=theirs, stderr=subprocess.PIPE, timeout=30, check=False
    )
    os.close(theirs)
    assert process.returncode == 141, "the shell's code for SIGPIPE"
    assert process.stderr == b""


WAITING = textwrap.dedent(
    """
    import sys, time
    from baker.cli.render import exit_code_of
    from baker.cli.signals import handled
    def wait():
        try:
            print("up", flush=True)
            time.sleep(30)
        finally:
            time.sleep(0.6)
            print("cleaned", flush=True)
    with handled():
        sys.exit(exit_code_of(wait, as_json=False))
    """
)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_run_the_clean_up_to_its_end(number: signal.Signals, code: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.send_signal(number)  # an impatient second one must not cut the clean-up short
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (code, "cleaned\n")
    assert number.name in err


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    assert run(["--version"]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_json_keeps_stdout_to_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    @baker_command("demo")
    def demo(console: Console) -> int:
        console.progress.step("working")
        console.progress.detail("only with -v")
        console.result({"answer": 42}, ["the answer is 42"])
        console.table(("a",), [(1,)])
        return 5

    assert demo.main(["--json"], standalone_mode=False) == 5
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"answer": 42}
    assert captured.err == "working\n"
    assert demo.main(["-v"], standalone_mode=False) == 5
    captured = capsys.readouterr()
    assert captured.out == "the answer is 42\na\n-\n1\n"
    assert captured.err == "working\n  only with -v\n"


def test_table_aligns_numbers_and_text() -> None:
    assert table(("phase", "cold s", "warm s"), [("init [x]", 35.8, 3.75), ("ready", 66.0, None)]) == [
        "phase     cold s  warm s",
        "--------  ------  ------",
        "init [x]   35.80    3.75",
        "ready      66.00       -",
    ]
    assert table(("a",), []) == ["a", "-"]


def test_progress_without_a_terminal_is_one_line_a_step() -> None:
    stream = io.StringIO()
    reporter = Reporter(stream)
    reporter.step("round 1")
    reporter.note("3 new files")
    reporter.step("round 2")
    reporter.table("sizes", ("n",), [(1,)])
    reporter.close()
    assert stream.getvalue() == "round 1\n  3 new files\nround 2\nsizes\n  n\n  -\n  1\n"


def test_progress_on_a_terminal_ends_each_step_with_its_seconds() -> None:
    code = "from baker.cli.progress import Reporter; r = Reporter(); r.step('round [1]'); r.note('3 new'); r.step('two'); r.close(); r.close()"
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", code], env={**ENV, "TERM": "xterm"}, stderr=theirs)
    os.close(theirs)
    data = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # EIO: the other end of a pseudo-terminal is closed
            break
        if not chunk:
            break
        data += chunk
    os.close(ours)
    assert process.wait(20) == 0
    text = data.decode()
    assert "round [1] (0." in text
    assert "  3 new" in text
    assert text.count("two (0.") == 1


def test_profiles_commands(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(["profiles", "list", "--json"]) == 0
    listed = {profile["name"] for profile in json.loads(capsys.readouterr().out)["profiles"]}
    assert {"default", "smoke"} <= listed
    assert run(["profiles", "show", "default"]) == 0
    assert "batch-max" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text("name: mine\nstages:\n  - {name: a, batch: 1, input: 1, output: 1, requests: 1}\n")
    assert run(["profiles", "validate", "mine.yaml"]) == 0
    assert "valid, 1 stages, 1 requests a round" in capsys.readouterr().out
    Path("mine.yaml").write_text("name: mine\nstages:\n  - {name: a, batch: 0, input: 0, output: 1, requests: 1}\n")
    assert run(["profiles", "validate", str(tmp_path / "mine.yaml"), "--json"]) == 2
    problems = json.loads(capsys.readouterr().out)["error"]["details"]["problems"]
    assert [problem["where"] for problem in problems] == ["stages[0].batch", "stages[0].input"]
    assert run(["profiles", "validate", "mine.yaml"]) == 2
    assert "also:     stages[0].input" in capsys.readouterr().err
