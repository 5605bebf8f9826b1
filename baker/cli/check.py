"""`baker check`: would this image be compatible on this host, or on a node of which the facts are at hand."""

from __future__ import annotations

from pathlib import Path

import click

from baker.cli.build import default_engine
from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.cli.options import ServeCommand, assignments
from baker.inside.start import CHECK_EXITS
from baker.steps import verdicts
from baker.steps.images import open_image


@baker_command("check", cls=ServeCommand)
@click.argument("reference", metavar="REF")
@click.option("--facts", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Facts of another node.  [default: this host's]")
@click.option("--set", "set_name", default="", metavar="NAME", help="Which set.  [default: the one that fits best, as `start` picks]")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="A variable that the pod sets; may be repeated.")
def command(console: Console, reference: str, facts: Path | None, set_name: str, env: tuple[str, ...], serve: tuple[str, ...]) -> int:
    """Would the image REF be compatible on this host? Per kind, with reasons.

    The same code decides as at container start. SERVE ARGS replace the recorded arguments. Exit 0 yes, 10 partly, 11 cold.
    """
    opened = open_image(default_engine(), default_engine().read(reference))
    environment = {**opened.env, **assignments(env)}
    known = verdicts.file_facts(facts, opened.manifest, environment) if facts else verdicts.host_facts(opened.manifest, environment)
    first = verdicts.judge(opened.manifest, known, (), environment, set_name)
    chosen = first.cache_set
    judged = verdicts.judge(opened.manifest, known, verdicts.command_of(chosen, serve), environment, chosen.name) if chosen else first
    show(console, judged)
    return CHECK_EXITS[judged.verdict.word]


def show(console: Console, judged: verdicts.Judged) -> None:
    """One line a kind, then every finding; or the document."""
    verdict = judged.verdict
    lines = [f"{verdict.word}: set {verdict.set_name}" if verdict.set_name else f"{verdict.word}: no set fits"]
    for name in verdict.kinds:
        codes = ", ".join(verdict.hidden.get(name, []))
        lines.append(f"  {name:<18}{verdicts.state(verdict, name)}{': ' + codes if codes else ''}")
    lines += [finding.line() for finding in verdict.findings]
    console.result(judged.document(), lines)
