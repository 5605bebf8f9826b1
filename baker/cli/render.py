"""What a failed command prints, and the exit code that it ends with. Secret values are masked in all of it."""

from __future__ import annotations

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
from baker.errors import BakerError, Interrupted, UsageError

# 128 + SIGPIPE, what a shell reports when a reader such as `head` has gone.
BROKEN_PIPE = 128 + signal.SIGPIPE


def exit_code_of(command: Callable[[], Any], *, as_json: bool) -> int:
    """Run `command`; render whatever it raises. An int that it returns is the exit code, None is 0."""
    try:
        result = command()
        sys.stdout.flush()
    except (SystemExit, BrokenPipeError):
        # The reader of stdout has gone; click turns that into SystemExit, which nothing else below raises.
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)  # else the interpreter complains once more when it flushes the stream at its end
        os.close(devnull)
        return BROKEN_PIPE
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except BakerError as error:
        return report(error if error.exit_code != 1 else _bug(error), as_json=as_json)
    except click.ClickException as error:
        return report(_usage(error), as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        return report(Interrupted(signal.SIGINT, "ended by SIGINT"), as_json=as_json)
    except Exception as error:  # noqa: BLE001 - the last line of defence: whatever is left is our bug, and is kept
        return report(_bug(error), as_json=as_json)
    return result if isinstance(result, int) else 0


def report(error: BakerError, *, as_json: bool) -> int:
    """Print one error: lines for people on stderr, or one JSON document on stdout. Returns its exit code."""
    mask = masker()
    if as_json:
        click.echo(mask(json.dumps({"error": error.document()}, default=str)))
    else:
        click.echo(mask("\n".join(lines(error))), err=True)
    return error.exit_code


def lines(error: BakerError) -> list[str]:
    """The error as lines of text: what happened, what was found and expected, what to do."""
    text = [f"baker: {error.message}"]
    for label, value in (("found", error.found), ("expected", error.expected), ("do", error.remedy)):
        if value:
            text.append(f"  {label + ':':<10}{value}")
    for problem in error.details.get("problems", [])[1:]:
        text.append(f"  also:     {problem['where']}: {problem['message']}")
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
        except (OSError, RuntimeError):
            continue  # a full or read-only disk, or no home: the next place, and at last the terminal
        return Path(path)
    return None


def masker() -> Callable[[str], str]:
    """A function that replaces by *** the values of secret-looking variables and arguments of this process."""
    from baker.inside.logtail import Masker, argument_secrets
    from baker.pack.leaks import from_environment

    return Masker([*from_environment(os.environ).values(), *argument_secrets(sys.argv)]).text
