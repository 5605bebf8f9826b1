"""What a failed command prints, and the exit code that it ends with. Secret values are masked in all of it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from baker import __version__
from baker.errors import BakerError, Interrupted, MachineError, UsageError

# Failures of the machine that can come from any call, and what it lacked.
_MACHINE = {
    errno.ENOSPC: "free space, in the temporary directory too",
    errno.EDQUOT: "room in the quota of this user",
    errno.EFBIG: "a larger limit of the file size (ulimit -f)",
    errno.EMFILE: "a larger limit of open files (ulimit -n)",
    errno.ENFILE: "room in the system's table of open files",
    errno.EROFS: "a writable file system",
    errno.EIO: "a disk without errors",
    errno.ENOMEM: "more memory",
    errno.EAGAIN: "a larger limit of processes (ulimit -u)",
}
# 128 + SIGPIPE, what a shell reports when a reader such as `head` has gone.
BROKEN_PIPE = 128 + signal.SIGPIPE


def exit_code_of(command: Callable[[], Any], *, as_json: bool) -> int:
    """Run `command`; render whatever it raises. An int that it returns is the exit code, None is 0."""
    try:
        result = command()
        sys.stdout.flush()
    except (SystemExit, BrokenPipeError):
        # The reader of stdout has gone; click turns that into SystemExit, which nothing else below raises.
        _drop_stdout()
        return BROKEN_PIPE
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except BakerError as error:
        return report(error if error.exit_code != 1 else _bug(error), as_json=as_json)
    except click.ClickException as error:
        return report(_usage(error), as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        return report(Interrupted(signal.SIGINT, "ended by SIGINT"), as_json=as_json)
    except OSError as error:
        return report(_machine(error) or _bug(error), as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the last line of defence: whatever is left is our bug, and is kept
        return report(_bug(error), as_json=as_json)
    return result if isinstance(result, int) else 0


def report(error: BakerError, *, as_json: bool) -> int:
    """Print one error: lines for people on stderr, or one JSON document on stdout. Returns its exit code."""
    mask = masker()
    text = mask("\n".join(lines(error)))
    try:
        click.echo(mask(json.dumps({"error": error.document()}, default=str)) if as_json else text, err=not as_json)
        sys.stdout.flush()
    except OSError:
        _drop_stdout()
        if as_json:
            with contextlib.suppress(OSError):  # both streams refuse: the exit code says what is left to say
                click.echo(text, err=True)
    return error.exit_code


def _drop_stdout() -> None:
    """Point stdout at /dev/null: else the interpreter fails once more when it flushes the stream at its end."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.close(devnull)


def _machine(error: OSError) -> BakerError | None:
    """What the machine, not baker, is to blame for, wherever it happens: no space, no descriptors, a broken disk. None for everything else."""
    if error.errno not in _MACHINE:
        return None
    return MachineError(
        f"this machine stopped baker: {error.strerror}",
        code="no-space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "machine",
        found=str(error),
        expected=_MACHINE[error.errno],
        remedy="give it that, then run the same command again: finished work is kept",
    )


def lines(error: BakerError) -> list[str]:
    """The error as lines of text: what happened, what was found and expected, what to do."""
    text = [f"baker: {error.message}"]
    for label, value in (("found", error.found), ("expected", error.expected), ("do", error.remedy)):
        if value:
            text.append(f"  {label + ':':<10}{value}")
    for problem in error.details.get("problems", [])[1:]:
        values = "".join(f", {name} {problem[name]}" for name in ("found", "expected") if problem.get(name))
        text.append(f"  also:     {problem['where']}: {problem['message']}{values}")
    return text


def _usage(error: click.ClickException) -> UsageError:
    """click's own errors in our form, with its guess of what was meant."""
    context = getattr(error, "ctx", None)
    help_command = f"{context.command_path if context else 'baker'} --help"
    option = getattr(error, "option_name", "")
    near = getattr(error, "possibilities", None)
    if isinstance(error, click.NoSuchOption):
        remedy = f"did you mean {' or '.join(near)}?" if near else f"see `{help_command}`"
        return UsageError(f"no such option: {option}", code="unknown-option", found=option, remedy=remedy)
    return UsageError(error.format_message().rstrip("."), remedy=f"see `{help_command}`")


def _bug(error: BaseException) -> BakerError:
    """Keep the traceback in a file of the user's own and say where."""
    text = masker()("".join(traceback.format_exception(error)))
    head = f"baker {__version__}, Python {platform.python_version()}, {platform.platform()}\n{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n"
    command = masker()(" ".join(sys.argv[1:]))
    path = _keep(f"{head}arguments: {command}\n\n{text}")
    where = f"traceback in {path}" if path else text
    return BakerError(
        f"this is a bug in baker: {type(error).__name__}",
        code="bug",
        found=where,
        remedy="please report it with that file; secret values in it are masked, look through it all the same" if path else "please report it",
        traceback=str(path or ""),
    )


def _keep(text: str) -> Path | None:
    """Write a file that only this user reads, in the state directory or else the temporary one; None when neither can be written."""
    from baker.steps.work import state_home

    for folder in (state_home, lambda: Path(tempfile.gettempdir())):
        try:
            place = folder()
            place.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(prefix=time.strftime("baker-crash-%Y%m%d-%H%M%S-"), suffix=".txt", dir=place)  # mode 0600
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except (OSError, RuntimeError, BakerError):
            continue  # a full or read-only disk, or no home: the next place, and at last the terminal
        return Path(path)
    return None


def masker() -> Callable[[str], str]:
    """A function that replaces by *** the values of secret-looking variables and arguments of this process."""
    from baker.inside.logtail import Masker, argument_secrets
    from baker.pack.leaks import from_environment

    return Masker([*from_environment(os.environ).values(), *argument_secrets(sys.argv)]).text
