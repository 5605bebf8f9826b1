"""How much `start` adds: verify at level `code` and fill a fresh live, against the interpreter doing nothing.

Synthetic image: 2,000 files of 100 KB in two kinds, all of it code (BAKER_VERIFY=code hashes every byte), page cache warm.
Aim: median of 10 <= 200 ms on 2 cores. The image lies in $TMPDIR, so its file system counts: links cost 5 us each on tmpfs, 30 us and more on ext4.
Usage: [TMPDIR=DIR] python bench/start_overhead.py [--files N] [--size BYTES] [--runs N] [--json]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from baker.pack.zips import start_zip
from tests.bad import images

AIM_S = 0.2


def content(kind: str, files: int, size: int) -> dict[str, bytes]:
    """Files in 256 directories, as Inductor and Triton lay theirs out."""
    chance = random.Random(kind)
    block = chance.randbytes(size)
    return {f"{i % 256:02x}/{chance.randbytes(8).hex()}.so": i.to_bytes(8, "big") + block[8:] for i in range(files)}


def file_system(path: Path) -> str:
    """Type of the file system that holds `path`, from the longest mount point above it."""
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    return max((point, kind) for point, kind in mounts if path.resolve().is_relative_to(point))[1]


def run(command: list[str], env: dict[str, str]) -> float:
    """Wall seconds of one process that must succeed."""
    begin = time.perf_counter()
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    seconds = time.perf_counter() - begin
    if done.returncode:
        sys.exit(done.stderr.decode())
    return seconds


def measure(image: images.Image, runs: int) -> tuple[list[float], list[float]]:
    """Seconds of `start` with a fresh live each time, and of the same interpreter doing nothing, in turns."""
    nothing = [sys.executable, "-I", "-S", "-c", "pass"]
    start = [sys.executable, "-I", "-S", str(image.root / "start"), "--", "/bin/true"]
    env = {**image.environ, "PATH": os.environ["PATH"], "HOME": str(image.root.parent), "BAKER_STATUS": str(image.root.parent / "status.json")}
    with_start, bare = [], []
    for turn in range(runs + 1):
        # Moved away, not removed: ext4 looks past inodes that were deleted in the last half minute, which makes new links ten times slower.
        (image.root / "live").rename(image.root / f"used-{turn}")
        (image.root / "live").mkdir(mode=0o775)
        bare.append(run(nothing, env))
        with_start.append(run(start, env))
        word = json.loads((image.root.parent / "status.json").read_text())["baker"]
        if word != "compatible":
            sys.exit(f"start said {word}: nothing to measure")
        if turn == 0:
            with_start.clear()  # the first run warms the page cache
            bare.clear()
    return with_start, bare


def main() -> int:
    """Build the image, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        image = images.make(
            Path(directory) / "image",
            content=lambda kind: content(kind, options.files // 2, options.size),
            zip_data=start_zip(importlib.util.MAGIC_NUMBER.hex()),
        )
        serve = image.document["sets"][0]["serve"]
        serve["program"], serve["argv"] = ["/bin/true"], []
        image.write_manifest()
        with_start, bare = measure(image, options.runs)
        image.thaw()
    result = {
        "files": options.files,
        "bytes": options.files * options.size,
        "runs": options.runs,
        "file_system": file_system(Path(tempfile.gettempdir())),
        "cores": len(os.sched_getaffinity(0)),
        "start_median_s": round(statistics.median(with_start), 4),
        "start_min_s": round(min(with_start), 4),
        "start_max_s": round(max(with_start), 4),
        "nothing_median_s": round(statistics.median(bare), 4),
        "overhead_median_s": round(statistics.median(with_start) - statistics.median(bare), 4),
        "aim_s": AIM_S,
    }
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name:18} {value}" for name, value in result.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
