"""Image engines. A new one is one file here and one line in `ALL`."""

from __future__ import annotations

import difflib

from baker.engines.base import Engine
from baker.engines.oci import Oci
from baker.errors import UsageError

ALL: tuple[Engine, ...] = (Oci(),)


def by_name(name: str) -> Engine:
    """The engine called `name`. Raises UsageError with the nearest name."""
    names = [engine.name for engine in ALL]
    for engine in ALL:
        if engine.name == name:
            return engine
    near = difflib.get_close_matches(name, names, 1)
    raise UsageError(
        f"unknown engine {name!r}",
        code="unknown-engine",
        found=name,
        expected=", ".join(names),
        remedy=f"did you mean {near[0]}?" if near else f"use one of {', '.join(names)}",
    )
