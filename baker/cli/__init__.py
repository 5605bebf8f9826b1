"""The command line: one command a file, each imported only when it is called.

A command parses, calls one function below, and renders what it returns. Results go to stdout, everything else to stderr; with `--json` stdout is
one JSON document, `{"error": {...}}` when the command failed. Exit codes: docs/artifact-spec.md.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

import click

from baker import __version__
from baker.cli.render import exit_code_of
from baker.cli.signals import handled
from baker.errors import UsageError

# The order of `baker --help`; each name is a module of this package with an object `command`.
COMMANDS = ("build", "plan", "prove", "inspect", "check", "explain", "profiles", "doctor")


class _Commands(click.Group):
    """Loads a command's module when it is asked for, and knows what a mistyped name may have meant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"baker.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Raise UsageError with the nearest command for a name that is none."""
        if not args[0].startswith("-") and args[0] not in COMMANDS:
            raise unknown_command(ctx, args[0], COMMANDS)
        return super().resolve_command(ctx, args)


def unknown_command(ctx: click.Context, name: str, known: Sequence[str]) -> UsageError:
    """The error for a command name that does not exist below `ctx`."""
    near = difflib.get_close_matches(name, known, 1)
    return UsageError(
        f"no such command: {ctx.command_path} {name}",
        code="unknown-command",
        found=name,
        expected=", ".join(known),
        remedy=f"did you mean {ctx.command_path} {near[0]}?" if near else f"see `{ctx.command_path} --help`",
    )


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="baker %(version)s")
def cli() -> None:
    """Bake the JIT caches of an LLM server into image layers, and prove that they hit."""


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code; every failure is rendered, none escapes."""
    arguments = list(args) or ["--help"]
    head = arguments[: arguments.index("--")] if "--" in arguments else arguments
    with handled():
        return exit_code_of(lambda: cli.main(arguments, prog_name="baker", standalone_mode=False), as_json="--json" in head)


def _open_standard_files() -> None:
    """Put /dev/null where 0, 1 or 2 is closed: else the first file that is opened would be written to as stdout or stderr."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - for the life of the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def main() -> None:
    """Entry point of the console script."""
    _open_standard_files()
    sys.exit(run(sys.argv[1:]))
