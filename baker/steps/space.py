"""Room on disk, asked for before the warm-up and not after it (case O-36)."""

from __future__ import annotations

from pathlib import Path

from baker.errors import MachineError
from baker.pack.space import free
from baker.spec import Plan

# The warm-up tree, its stash, the candidate and the output of a small model; larger ones are checked again, exactly, while packing.
FLOOR = 256 * 1024 * 1024


def require(plan: Plan, work: Path, destination: str) -> None:
    """Raise MachineError that names the file system with less than the floor (bytes)."""
    for what, path in (("the root", Path(plan.root)), ("the work directory", work), ("the output", Path(destination.removeprefix("oci:")))):
        room = free(path.absolute())
        if room < FLOOR:
            raise MachineError(
                f"too little space for {what} {path}",
                code="no-space",
                found=f"{room} bytes free",
                expected=f"at least {FLOOR} bytes before a bake starts",
                remedy="free space there, or pass --root, --work or --output on another file system",
            )
