"""Which factor differs between two images, or an image and a running server, and which kinds it makes useless."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baker.errors import MachineError
from baker.inside import decide
from baker.inside.arguments import masked
from baker.inside.manifest import CacheSet, Manifest
from baker.steps import verdicts

_WIDTH = 200  # characters of a value


@dataclass(frozen=True, slots=True)
class Side:
    """What B is: the facts of its machine, its command and its environment."""

    name: str
    facts: Mapping[str, Any]
    command: tuple[str, ...]
    env: Mapping[str, str]


def of_set(name: str, cache_set: CacheSet) -> Side:
    """An image's set as a world: its builder's machine, its own command and environment."""
    env = {str(key): str(value) for key, value in cache_set.serve["env"].items()}
    rows = {row.fact for kind in cache_set.kinds for row in kind.rows}
    facts = {**cache_set.builder, **{fact: env.get(fact[4:]) for fact in rows if fact.startswith("env.")}, "unknown": {}}
    return Side(name, facts, tuple(verdicts.command_of(cache_set, ())), env)


def of_process(pid: int, manifest: Manifest) -> Side:
    """A running server: its command line and environment as the kernel tells them, this host's facts. Raises MachineError."""
    place = Path("/proc") / str(pid)
    try:
        command = [os.fsdecode(word) for word in (place / "cmdline").read_bytes().split(b"\0")[:-1]]
        env = dict(os.fsdecode(item).partition("=")[::2] for item in (place / "environ").read_bytes().split(b"\0") if b"=" in item)
    except OSError as error:
        raise MachineError(
            f"process {pid} cannot be looked at",
            code="no-process",
            found=str(error.strerror or error),
            expected="a running server of this user",
            remedy="pass the pid of the server itself, as its owner or as root, on the host or inside of its container",
        ) from None
    return Side(f"pid:{pid}", verdicts.host_facts(manifest, env), tuple(_without_script(command)), env)


def _without_script(command: list[str]) -> list[str]:
    """`vllm serve …` runs as `python …/bin/vllm serve …`: the interpreter in front of a script is not part of the command."""
    if len(command) > 1 and Path(command[0]).name.startswith("python") and command[1].startswith("/") and not command[1].endswith(".py"):
        return command[1:]
    return command


def complete(side: Side, cache_set: CacheSet) -> Side:
    """Side B with facts that A's rows ask for and B does not tell marked as unknown, variables read from its environment."""
    facts, unknown = dict(side.facts), dict(side.facts.get("unknown", {}))
    for fact in (row.fact for kind in cache_set.kinds for row in kind.rows):
        if fact.startswith("env."):
            facts[fact] = side.env.get(fact[4:])
        elif fact not in facts:
            facts[fact], unknown[fact] = None, f"{side.name} does not record it"
    return Side(side.name, {**facts, "unknown": unknown}, side.command, side.env)


def judge(manifest: Manifest, cache_set: CacheSet, side: Side) -> verdicts.Judged:
    """What `start` would say of A's set in B's world."""
    whole = complete(side, cache_set)
    verdict, chosen = decide.judge(
        Manifest(manifest.root, manifest.plan, (cache_set,), manifest.raw), whole.facts, whole.command, whole.env, verdicts.LEVEL, verdicts.as_listed
    )
    return verdicts.Judged(verdict, chosen, whole.facts)


def differences(left: Any, right: Any, path: str = "") -> list[tuple[str, str, str]]:
    """Leaves at which two JSON documents differ: (dotted path, left, right), secret-looking values masked."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = sorted(left.keys() | right.keys())
        return [item for key in keys for item in differences(left.get(key), right.get(key), f"{path}.{key}" if path else str(key))]
    return [] if left == right else [(path, _text(path, left), _text(path, right))]


def _text(path: str, value: Any) -> str:
    shown = "absent" if value is None else masked(path.rpartition(".")[2], str(value))
    return shown if len(shown) <= _WIDTH else shown[:_WIDTH] + "…"


def files(left: CacheSet, right: CacheSet) -> dict[str, dict[str, int]]:
    """Kind -> how many files are the same, differ, or are only in one of the two."""
    found = {}
    for name in sorted({kind.name for kind in (*left.kinds, *right.kinds)}):
        one, other = ({f.path: f.sha256 for k in s.kinds if k.name == name for f in k.files} for s in (left, right))
        both = one.keys() & other.keys()
        same = sum(1 for path in both if one[path] == other[path])
        found[name] = {"same": same, "differ": len(both) - same, "only_a": len(one.keys() - both), "only_b": len(other.keys() - both)}
    return found
