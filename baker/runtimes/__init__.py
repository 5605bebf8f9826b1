"""Runtimes. A new one is one file here and one line in `ALL`."""

from __future__ import annotations

from baker.runtimes.base import Runtime
from baker.runtimes.command import Command
from baker.runtimes.vllm import Vllm

ALL: tuple[Runtime, ...] = (Command(), Vllm())


def by_name(name: str) -> Runtime:
    """The runtime of that name; the command line offers only names from `ALL`."""
    return {runtime.name: runtime for runtime in ALL}[name]
