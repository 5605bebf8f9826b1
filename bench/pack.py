"""How fast a tree becomes a layer, and how much memory that takes: `python bench/pack.py [FILES] [BYTES_A_FILE] [gzip|zstd]`.

Content is cut from shared objects of this Python, so that it compresses like machine code. Prints one line a step; the page cache is warm.
"""

from __future__ import annotations

import random
import resource
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from baker.caches.base import KEEP, Keep
from baker.inside.finding import Finding
from baker.pack.layer import tree_members, write_layer
from baker.pack.tree import survey
from baker.pack.unpack import unpack

RUNS = 3
POOL = 8 << 20  # bytes


class Everything:
    """A kind that ships whatever it finds."""

    name = "bench"

    def keep(self, path: str, size: int) -> Keep:
        """Keep it."""
        return KEEP

    def role(self, path: str) -> str:
        """All of it is code."""
        return "code"

    def problems(self, root: Path, paths: Sequence[str]) -> Sequence[Finding]:
        """None."""
        return ()


def make(root: Path, files: int, size: int) -> None:
    """Write the tree: `files` files of `size` bytes in 256 directories."""
    objects = sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.so"))
    pool = b""
    for path in objects:
        pool += path.read_bytes() if len(pool) < POOL else b""
    pool = pool or random.Random(0).randbytes(1 << 20)
    pool *= size // len(pool) + 2
    draw = random.Random(1)
    for number in range(files):
        path = root / f"{number % 256:02x}" / f"{number}.so"
        path.parent.mkdir(parents=True, exist_ok=True)
        at = draw.randrange(len(pool) - size)
        path.write_bytes(pool[at : at + size])


def timed(name: str, size: int, step: Callable[[], object]) -> None:
    """Print the median wall time of RUNS runs, and the rate in MiB/s."""
    seconds = []
    for _ in range(RUNS):
        begin = time.monotonic()
        step()
        seconds.append(time.monotonic() - begin)
    median = statistics.median(seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{name:8} {median:7.2f} s  {size / median / 2**20:7.0f} MiB/s  peak memory {peak} MiB")


def main(files: int = 10_000, size: int = 100_000, compression: str = "gzip") -> None:
    """Survey, pack and unpack one synthetic tree."""
    with tempfile.TemporaryDirectory(prefix="baker-bench-") as directory:
        root, out, target = Path(directory, "tree"), Path(directory, "layers"), Path(directory, "root")
        make(root, files, size)
        found = survey(root, Everything())
        prefix = "opt/baker/sets/bench/bench"
        layer = write_layer("bench", tree_members(root, prefix, found.files), out, created=0, compression=compression)
        print(f"{files} files, {found.size / 2**20:.0f} MiB, {compression}: {layer.size / 2**20:.0f} MiB packed, median of {RUNS}")
        timed("survey", found.size, lambda: survey(root, Everything()))
        timed("pack", found.size, lambda: write_layer("bench", tree_members(root, prefix, found.files), out, created=0, compression=compression))
        timed("unpack", found.size, lambda: unpack([layer.path], target, prefix="/opt/baker"))


if __name__ == "__main__":
    main(*(int(a) if a.isdigit() else a for a in sys.argv[1:]))  # type: ignore[arg-type]
