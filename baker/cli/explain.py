"""`baker explain`: why the caches of one image do not serve another image's world, or a running server."""

from __future__ import annotations

import click

from baker.cli.build import default_engine
from baker.cli.check import show
from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.errors import UsageError
from baker.inside.manifest import CacheSet
from baker.steps import explain, images


@baker_command("explain")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--set", "set_name", default="", metavar="NAME", help="Which set of A, and of B if it has it.  [default: the first]")
def command(console: Console, first: str, second: str, set_name: str) -> int:
    """Which factor differs between the image A and B: an image, or pid:N of a running server.

    Says what `start` would say of A's caches in B's world: every differing fact, argument and variable, and the kinds that depend on it.
    """
    opened = images.open_image(default_engine(), default_engine().read(first))
    ours = _set(opened, set_name)
    if second.startswith("pid:"):
        if not second[4:].isdigit():
            raise UsageError(f"{second!r} names no process", code="bad-pid", found=second, expected="pid:NUMBER", remedy="pass the server's pid")
        judged = explain.judge(opened.manifest, ours, explain.of_process(int(second[4:]), opened.manifest))
        show(console, judged)
        return 0
    other = images.open_image(default_engine(), default_engine().read(second))
    theirs = _set(other, set_name if set_name in images.set_names(other) else "")
    judged = explain.judge(opened.manifest, ours, explain.of_set(second, theirs))
    plans = explain.differences(images.plan_of(opened, ours.name), images.plan_of(other, theirs.name))
    builders = explain.differences(ours.builder, theirs.builder)
    counts = explain.files(ours, theirs)
    document = {
        "a": {"reference": first, "set": ours.name, "digest": opened.image.digest},
        "b": {"reference": second, "set": theirs.name, "digest": other.image.digest},
        "same": opened.image.digest == other.image.digest,
        "plan": [{"what": what, "a": a, "b": b} for what, a, b in plans],
        "builder": [{"what": what, "a": a, "b": b} for what, a, b in builders],
        "files": counts,
        **judged.document(),
    }
    lines = [f"A {first} (set {ours.name}), B {second} (set {theirs.name})"]
    lines += [f"plan     {what}: {a} -> {b}" for what, a, b in plans if what != "id"]
    lines += [f"builder  {what}: {a} -> {b}" for what, a, b in builders]
    lines += [
        f"files    {kind}: {c['same']} the same, {c['differ']} differ, {c['only_a']} only in A, {c['only_b']} only in B" for kind, c in counts.items()
    ]
    lines.append(f"A's caches in B's world: {judged.verdict.word}")
    lines += [finding.line() for finding in judged.verdict.findings]
    console.result(document, lines)
    return 0


def _set(opened: images.Opened, name: str) -> CacheSet:
    names = images.set_names(opened)
    if name and name not in names:
        raise UsageError(f"no set {name!r} in this image", code="no-such-set", found=name, expected=", ".join(names), remedy="pass one of them")
    return next(cache_set for cache_set in opened.manifest.sets if name in ("", cache_set.name))
