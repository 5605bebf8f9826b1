"""Play the truth table: `python -m tests.vgpu.table IMAGE --out docs/evidence/truth-table [--rows a,b] [--machines LIBRARIES | --here]`.

IMAGE is `oci:DIR:TAG` of an image that was baked on this host (its interpreter and model must be here). `--machines` names the folder of the stand-in
libraries; `--here` plays only the rows that need no other machine, on the GPU that is there. Exit 1 when a row disagrees without a written reason.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from baker.engines.oci import Oci
from baker.pack.unpack import unpack
from baker.steps.images import open_image
from tests.vgpu.machines import machine
from tests.vgpu.table import render
from tests.vgpu.table.judge import judge
from tests.vgpu.table.play import Ground, Image, namespaces, play
from tests.vgpu.table.rows import ROWS, Row, by_name

HOST = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CPATH", "LIBRARY_PATH", "LANG")
WORKERS = 2  # the two starts of a row; each keeps one core busy
VIRTUAL = "Virtual GPU: no kernel ran. Keys, files and load lines are those of the real code; tokens and times mean nothing."
REAL = "Real GPU."


def load(reference: str, set_name: str) -> Image:
    """The image, with the set to play (the first by default)."""
    opened = open_image(Oci(), Oci().read(reference))
    chosen = next(s for s in opened.manifest.sets if set_name in ("", s.name))
    return Image(opened.layer_paths, opened.manifest, opened.env, chosen)


def one(row: Row, image: Image, ground: Ground, say: Any, workers: Executor) -> tuple[Row, dict[str, Any], list[Any]]:
    """Both starts of a row, at the same time where the executor has room, judged."""
    starts = [workers.submit(play, image, row, ground, forced=forced) for forced in (False, True)]
    through, forced = (start.result() for start in starts)
    kinds = [judge(row, kind.name, through, forced, [p.pattern for p in kind.mutable]) for kind in image.cache_set.kinds]
    numbers = {
        "word": through.word or "refused",
        "status": {"start": through.status, "forced": forced.status},
        "seconds": {"start": through.seconds, "forced": forced.seconds},
        "error": through.error if through.status != "ready" else forced.error if forced.status != "ready" else "",
    }
    cells = ", ".join(f"{j.kind} {j.said}: {j.done.what}/{j.forced.what}{'' if j.agrees else ' DISAGREES'}" for j in kinds)
    say(f"{row.name}: {through.word} ({through.status}, {forced.status}; {through.seconds} + {forced.seconds} s): {cells}")
    return row, numbers, kinds


def header(image: Image, title: str, virtual: bool) -> dict[str, Any]:
    """What the table is of."""
    builder = image.cache_set.builder
    names = ("pkg.vllm", "pkg.torch", "pkg.triton", "pkg.flashinfer-python", "gpu.name", "driver.version", "cuda.driver_api", "python.version")
    versions = {name.removeprefix("pkg."): builder[name] for name in names if builder.get(name)}
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    return {
        "title": title,
        "first_line": VIRTUAL if virtual else REAL,
        "versions": {"date": date, **versions, "serve": " ".join(image.cache_set.serve["argv"][1:])},
    }


def scratch_names(image: Image, ground: Ground) -> dict[str, str]:
    """Directories of this machine -> names."""
    python = Path(image.cache_set.serve["python"])
    return {
        image.manifest.root: "/opt/baker",
        str(ground.scratch): "<scratch>",
        str(python.parents[1]): "<environment>",
        str(Path(image.cache_set.serve["argv"][0])): "<model>",
        str(Path(__file__).parents[3]): "<repository>",
        str(Path(sys.base_prefix)): "<python>",
    }


def run(image: Image, ground: Ground, rows: Sequence[Row], out: Path, title: str, *, virtual: bool, say: Any) -> dict[str, Any]:
    """Play rows and write the table after each, so that an interrupted run leaves what it has; rows that are not played again stay."""
    played: list[Any] = []
    names = scratch_names(image, ground)
    kept = render.rows_of(out)
    table: dict[str, Any] = {}
    unpack(image.layers, image.manifest.root)
    with ThreadPoolExecutor(WORKERS) as workers:
        for row in rows:
            played.append(one(row, image, ground, say, workers))
            table = render.merged(render.document(header(image, title, virtual), played), kept, [known.name for known in ROWS])
            render.write(table, out, names)
    return table


def ground_of(libraries: str, scratch: Path) -> Ground:
    """Stand-in machines made on demand from `libraries`; "" leaves the host's own driver."""
    host = {name: os.environ[name] for name in HOST if name in os.environ}
    link = scratch / "cuda-elsewhere"
    if not link.is_symlink():
        link.symlink_to(os.environ.get("CUDA_HOME", "/usr/local/cuda"))

    def made(changes: Mapping[str, Any]) -> Path | None:
        if not libraries:
            return None
        name = "-".join(f"{key}{value}" for key, value in sorted(changes.items())) or "bake"
        return machine(Path(libraries), scratch / "machines" / name, **changes)

    return Ground(made, scratch, host, str(link))


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, play, report."""
    parser = argparse.ArgumentParser(description="Play the truth table.")
    parser.add_argument("image")
    parser.add_argument("--set", default="")
    parser.add_argument("--out", type=Path, required=True, help="path of the evidence without suffix")
    parser.add_argument("--rows", default="", help="names, separated by commas")
    parser.add_argument("--title", default="")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--machines", default="", help="folder of the stand-in libraries")
    where.add_argument("--here", action="store_true", help="only rows that need no other machine")
    given = parser.parse_args(argv)
    if not namespaces():
        print("the truth table needs mount namespaces (unshare -m): run it as root", file=sys.stderr)
        return 3
    image = load(given.image, given.set)
    rows = [by_name(name) for name in given.rows.split(",")] if given.rows else [row for row in ROWS if row.one_machine or given.machines]
    with tempfile.TemporaryDirectory(prefix="baker-table-") as directory:
        Path(directory).chmod(0o755)
        ground = ground_of(given.machines, Path(directory))
        title = given.title or f"vLLM {image.cache_set.builder.get('pkg.vllm')} on {image.cache_set.builder.get('gpu.name')}"
        table = run(image, ground, rows, given.out, title, virtual=bool(image.cache_set.raw.get("virtual")), say=lambda text: print(text, flush=True))
    print(json.dumps({"rows": len(rows), "disagreements": table["disagreements"]}))
    return 1 if table["disagreements"] else 0


if __name__ == "__main__":
    sys.exit(main())
