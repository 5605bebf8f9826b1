"""What every command shares: `--json`, `-v`, and the console that keeps results on stdout apart from progress on stderr."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from baker.cli.progress import Reporter, table

Function = Callable[..., Any]


class Console:
    """One command's output. `json` and `verbose` are the user's switches; `progress` is for people, on stderr."""

    def __init__(self, as_json: bool, verbose: int) -> None:
        self.json = as_json
        self.verbose = verbose
        self.progress = Reporter(verbose=verbose)

    def result(self, document: Mapping[str, Any], lines: Sequence[str] = ()) -> None:
        """Print the command's result: `document` with --json, else `lines`. Call once."""
        self.progress.close()
        if self.json:
            click.echo(json.dumps(document, indent=2, default=str))
        elif lines:
            click.echo("\n".join(lines))

    def text(self, lines: Sequence[str]) -> None:
        """More of the result for people; nothing with --json."""
        self.progress.close()
        if not self.json and lines:
            click.echo("\n".join(lines))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print a table of the result for people; nothing with --json, where the document holds it."""
        self.progress.close()
        if not self.json:
            click.echo("\n".join(table(columns, rows)))


def command(name: str, *, cls: type[click.Command] = click.Command, **attributes: Any) -> Callable[[Function], click.Command]:
    """Decorator: a click command with `--json` and `-v`, whose function gets a Console first. Its int result is the exit code."""

    def decorate(function: Function) -> click.Command:
        @functools.wraps(function)
        def call(*args: Any, as_json: bool, verbose: int, **kwargs: Any) -> Any:
            console = Console(as_json, verbose)
            try:
                return function(console, *args, **kwargs)
            finally:
                console.progress.close()

        made: click.Command = click.command(name, cls=cls, **attributes)(call)
        made.params += [
            click.Option(["-v", "--verbose"], count=True, help="Say more on stderr."),
            click.Option(["--json", "as_json"], is_flag=True, help="Print the result, or the error, as one JSON document."),
        ]
        return made

    return decorate
