"""The help blocks of README.md, made from the commands themselves: `python -m tests.docs_blocks [--write]` (`make docs`).

A block stands between `<!-- help: COMMAND -->` and `<!-- end -->`; its width is that of a terminal of 80 columns (click leaves two free).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from baker.cli import cli

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"(?P<head><!-- help: (?P<name>[a-z -]+) -->\n)```\n.*?```\n(?P<tail><!-- end -->)", re.DOTALL)


def leaves(group: click.Group = cli, prefix: str = "", parent: click.Context | None = None) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command that does something, with its full name, in the order of the help."""
    context = _context(group, prefix.rpartition(" ")[2] or "baker", parent)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        full = f"{prefix} {name}".strip()
        if isinstance(command, click.Group):
            yield from leaves(command, full, context)
        else:
            yield full, command, _context(command, name, context)


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, terminal_width=78, **command.context_settings)


def rendered(text: str) -> str:
    """`text` with every block as it must be. Raises KeyError for a block of a command that does not exist."""
    help_of = {name: command.get_help(context) for name, command, context in leaves()}
    return BLOCK.sub(lambda match: f"{match['head']}```\n{help_of[match['name']]}\n```\n{match['tail']}", text)


def main() -> int:
    """Compare README.md with the commands, or rewrite it; exit 1 when it differs."""
    text = README.read_text(encoding="utf-8")
    new = rendered(text)
    if "--write" in sys.argv:
        README.write_text(new, encoding="utf-8")
    elif new != text:
        print("README.md: help blocks are not those of the commands; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
