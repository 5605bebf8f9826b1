"""How much smaller a lean Triton layer is: real kernels, with and without Triton's switch, packed by baker, against gzip -6 of the whole.

Aims: at least 3 times smaller with the default gzip, 4 times with zstd.
Usage: python bench/triton_layer.py --python EXE [--kernels 300] [--json]   EXE: an environment with Triton
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from baker.caches import by_name
from baker.pack.image import KindTree, Packer
from baker.pack.tree import survey

AIMS = {"gzip": 3.0, "zstd": 4.0}


def fill(python: str, cache: Path, kernels: int, lean: bool) -> float:
    """Compile into `cache`; seconds."""
    env = {**os.environ, "TRITON_CACHE_DIR": str(cache), **(by_name("triton").lean if lean else {})}
    begin = time.perf_counter()
    subprocess.run([python, str(Path(__file__).with_name("triton_kernels.py")), str(kernels)], env=env, check=True)
    return time.perf_counter() - begin


def plain(cache: Path) -> int:
    """Bytes of `tar | gzip -6` of everything, what a COPY of the directory costs."""
    sink = io.BytesIO()
    with gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=6, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
        tar.add(cache, arcname=".")
    return sink.tell()


def layer(cache: Path, out: Path, compression: str) -> tuple[int, int]:
    """(compressed bytes, files) of baker's layer."""
    kind = by_name("triton")
    files = survey(cache, kind).files
    (packed,) = Packer("/opt/baker", out, 0, compression).kind_layers("bench", [KindTree(kind.name, kind.stability, cache, files)])
    return packed.size, packed.files


def main() -> int:
    """Measure and print; exit 1 below an aim."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", required=True)
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        whole, lean = top / "whole" / "live" / "triton", top / "lean" / "live" / "triton"
        seconds = {"whole": fill(given.python, whole, given.kernels, lean=False), "lean": fill(given.python, lean, given.kernels, lean=True)}
        base = plain(whole)
        sizes = {name: sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) for name, path in (("whole", whole), ("lean", lean))}
        layers = {form: layer(lean, top / form, form) for form in AIMS}
    kernels = given.kernels
    ratios = {form: round(base / size, 2) for form, (size, _) in layers.items()}
    document = {"kernels": kernels, "bytes": sizes, "gzip_6_of_the_whole": base, "layers": layers, "ratios": ratios, "compile_s": seconds}
    if given.json:
        print(json.dumps(document))
    else:
        print(f"{kernels} kernels: whole {sizes['whole']} bytes, lean {sizes['lean']} ({sizes['lean'] / sizes['whole']:.0%})")
        print(f"gzip -6 of the whole: {base} bytes")
        for form, (size, files) in layers.items():
            print(f"lean layer, {form}: {size} bytes, {files} files: {ratios[form]} times smaller (aim {AIMS[form]})")
    return 0 if all(ratios[form] >= aim for form, aim in AIMS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
