"""Executors. A new one is one file here and one line in `ALL`."""

from __future__ import annotations

from baker.executors.base import Executor
from baker.executors.local import Local

ALL: tuple[Executor, ...] = (Local(),)


def by_name(name: str) -> Executor:
    """The executor of that name; the command line offers only names from `ALL`."""
    return {executor.name: executor for executor in ALL}[name]
