"""`baker prove`: start a finished image, measure, attach the proof."""

from __future__ import annotations

from pathlib import Path

import click

from baker.cli.build import default_engine, ports, show
from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.cli.options import door as names
from baker.pipeline import prove_reference


@baker_command("prove")
@click.argument("reference", metavar="REF")
@click.option("--executor", default="local", show_default=True, type=names("executors"), help="Where the server is started.")
@click.option("--model", default="", metavar="DIR", help="Where the model's files are on this machine.  [default: where they were at bake]")
@click.option("--set", "set_name", default="", metavar="NAME", help="Which set.  [default: the one that fits this machine]")
@click.option("--work", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Work directory.  [default: below the state directory]")
def command(console: Console, reference: str, executor: str, model: str, set_name: str, work: Path | None) -> int:
    """Start the image REF as it ships, measure it, and attach the proof."""
    built = prove_reference(
        reference, lambda runtime: ports(runtime, executor, "oci"), default_engine(), model, work, console.progress.step, set_name
    )
    return show(console, built)
