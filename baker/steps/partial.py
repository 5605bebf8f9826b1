"""Whole rounds of an unfinished strategy, kept so that the same command goes on after any end of the last one.

After each round `partial.json` holds its number and the inventory of live. However the build ends (a signal moves live to `partial/<kind>`, a kill
leaves it at the root), the next one takes the tree back if every file of that inventory is intact; what the interrupted round added is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from baker.errors import MachineError
from baker.executors.base import Place
from baker.pack.tree import inventory
from baker.pack.unpack import remove
from baker.steps.facts import same_machine
from baker.steps.work import read_json, write_json

Trees = Mapping[str, Mapping[str, list[Any]]]  # kind -> path -> [type, size, sha256 or link target]


@dataclass(slots=True)
class Rounds:
    """What whole rounds of one strategy left behind."""

    kinds: tuple[str, ...]
    facts: Mapping[str, Any]  # of the machine that warmed them
    records: list[dict[str, Any]] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    live: Trees = field(default_factory=dict)


def save(home: Path, rounds: Rounds) -> None:
    """Write `partial.json` after a whole round."""
    write_json(home / "partial.json", asdict(rounds), sealed=True)


def forget(home: Path) -> None:
    """Nothing is unfinished any more."""
    (home / "partial.json").unlink(missing_ok=True)
    remove(home / "partial")


def take_back(home: Path, place: Place, facts: Mapping[str, Any]) -> Rounds | None:
    """Bring live back to the end of the last whole round; None (with live empty) when there was none, here, that is intact."""
    document = read_json(home / "partial.json", sealed=True)
    if document is None or not same_machine(document.get("facts"), facts):
        forget(home)
        place.wipe()
        return None
    rounds = Rounds(tuple(document["kinds"]), facts, document["records"], document["tokens"], document["live"])
    stash = home / "partial"
    if not stash.exists():
        place.stash(rounds.kinds, stash)  # a kill left live at the root
    place.wipe()
    if not all(_trim(stash / kind, rounds.live.get(kind, {})) for kind in rounds.kinds):
        forget(home)
        return None
    place.restore(rounds.kinds, stash)
    return rounds


def _trim(tree: Path, wanted: Mapping[str, list[Any]]) -> bool:
    """Remove what is not in `wanted`; False when something of it is missing or differs."""
    if not tree.is_dir():
        return False
    try:
        found = inventory(tree)
    except MachineError:
        return False  # not readable as a tree any more
    for path in found.keys() - wanted.keys():
        (tree / path).unlink()
    return all(list(found.get(path) or ()) == list(entry) for path, entry in wanted.items() if entry[0] != "other")
