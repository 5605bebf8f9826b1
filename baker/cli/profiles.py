"""`baker profiles`: list, show, validate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from baker import profiles
from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.spec import Profile


class _Group(click.Group):
    """A group that names the nearest subcommand for a mistyped one."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Raise UsageError for a name that is none."""
        if not args[0].startswith("-") and args[0] not in self.commands:
            from baker.cli import unknown_command

            raise unknown_command(ctx, args[0], list(self.commands))
        return super().resolve_command(ctx, args)


@click.group("profiles", cls=_Group, no_args_is_help=False)
def command() -> None:
    """List, show and check warm-up profiles."""


def _document(profile: Profile, path: Path) -> dict[str, Any]:
    return {"path": str(path), "description": profile.description, **profile.document()}


def _requests(profile: Profile) -> int:
    return sum(entry.batch * entry.requests for entry in profile.entries)


@baker_command("list")
def list_(console: Console) -> None:
    """List the profiles that come with baker."""
    found = [(profiles.load(name), profiles.locate(name)) for name in profiles.names()]
    console.result({"profiles": [_document(profile, path) for profile, path in found]})
    console.table(("name", "stages", "requests", "description"), [(p.name, len(p.entries), _requests(p), p.description) for p, _ in found])


@baker_command("show")
@click.argument("name")
def show(console: Console, name: str) -> None:
    """Show one profile: NAME, or the path of a YAML file."""
    profile, path = profiles.load(name), profiles.locate(name)
    console.result(
        _document(profile, path),
        [
            f"{profile.name}: {profile.description}" if profile.description else profile.name,
            f"file: {path}",
            f"serve: {' '.join(profile.serve) or '-'}",
            f"env: {' '.join(f'{key}={value}' for key, value in profile.env.items()) or '-'}",
            "",
        ],
    )
    console.table(
        ("stage", "concurrent prompts", "prompt tokens", "generated tokens", "repeats"),
        [(e.name, e.batch, e.input, e.output, e.requests) for e in profile.entries],
    )


@baker_command("validate")
@click.argument("file", type=click.Path(path_type=Path))
def validate(console: Console, file: Path) -> None:
    """Check a profile file and name everything that is wrong with it."""
    path = profiles.locate(f"./{file}" if not file.is_absolute() else str(file))
    checked = profiles.validate(path)
    if not isinstance(checked, Profile):
        raise profiles.invalid(path, checked)
    stages = len(checked.entries)
    console.result({"valid": True, **_document(checked, path)}, [f"{path}: valid, {stages} stages, {_requests(checked)} requests a round"])


for _subcommand in (list_, show, validate):
    command.add_command(_subcommand)
