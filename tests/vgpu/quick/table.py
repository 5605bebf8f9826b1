"""Triton's truth table: one image, baked with real Triton for one H100; then on other machines, through `start` and by force.

`python -m tests.vgpu.quick.table --python EXE [--out docs/evidence/truth-table-triton]`: EXE is an environment with Triton. Takes two minutes.
"Shown" must hit; "hidden" must miss or fail when live is filled unchecked, else the row needs a reason. Exit 1 for a disagreement without one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from baker.engines.oci import Oci
from baker.inside import fill
from baker.inside.live import Live
from baker.pack.unpack import unpack
from baker.steps.images import Opened, open_image
from tests.vgpu.quick import bed

FIRST_LINE = "Quick stand-in: real Triton and ptxas, no GPU and no kernel ran. Keys and hits are Triton's own; an older driver's refusal is assumed."
KIND = "triton"
LIMIT_S = 200


@dataclass(frozen=True)
class Row:
    """What varies: the stand-in's variables and other environment, tools on PATH, user, place, file system."""

    name: str
    why: str
    env: Mapping[str, str] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None  # the only programs on PATH; None: the host's
    uid: int = 0
    moved: bool = False
    read_only: bool = False
    driver_elsewhere: bool = False
    reason: str = ""


ROWS = (
    Row("same", "the machine of the bake"),
    Row("sm_80", "an older capability", {"QUICK_CAPABILITY": "80", "QUICK_NAME": "NVIDIA A100-SXM4-80GB"}),
    Row("sm_100", "a newer capability", {"QUICK_CAPABILITY": "100", "QUICK_NAME": "NVIDIA B200"}),
    Row("sm_120", "a newer capability, another family", {"QUICK_CAPABILITY": "120", "QUICK_NAME": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}),
    Row("h200", "another product of the same capability", {"QUICK_NAME": "NVIDIA H200"}),
    Row("driver-newer", "the next driver branch", {"QUICK_CUDA": "13010", "QUICK_DRIVER": "590.44.01"}),
    Row(
        "driver-older",
        "a driver that serves CUDA 12.4 only (case O-19)",
        {"QUICK_CUDA": "12040", "QUICK_DRIVER": "550.54.15"},
        reason="these cubins are of CUDA 12, but the environment's torch is built for CUDA 13 and would not start; the stand-in for torch does",
    ),
    Row("libcuda-803", "a compat libcuda that does not fit the kernel's driver (case O-21)", {"QUICK_INIT": "803"}),
    Row("no-device", "a driver without a device (case O-27)", {"QUICK_INIT": "100"}),
    Row("dump-set", "a variable of Triton's key, merely set", {"MLIR_ENABLE_DUMP": "0"}),
    Row("ptxas-options", "options of the assembler", {"PTXAS_OPTIONS": "-O2"}),
    Row("binary-only-unset", "the lean form needs no switch to be read", {"TRITON_STORE_BINARY_ONLY": "0"}),
    Row("no-compiler", "no C compiler in the image (case O-16)", tools=("file",)),
    Row("no-file", "the program `file` is missing: the launcher is built again, kernels hit", tools=("gcc", "as", "ld")),
    Row("driver-elsewhere", "libcuda.so.1 lies in another directory", driver_elsewhere=True),
    Row("moved", "the image lies at another root", moved=True),
    Row("read-only", "a read-only root with an empty live on a tmpfs; by force: live read-only too", read_only=True),
    Row("uid", "an arbitrary user in group 0 (case O-03)", uid=12345),
)


@dataclass(frozen=True)
class Ground:
    """Where things are: interpreter, stand-in libraries, the image and its root."""

    python: str
    libraries: Path
    opened: Opened
    scratch: Path

    @property
    def root(self) -> Path:
        """The root that the image was made for."""
        return Path(self.opened.manifest.root)


def bake(python: str, scratch: Path) -> Ground:
    """`baker build --runtime command` of the kernels on the stand-in. Raises AssertionError with what it printed."""
    libraries = bed.build(scratch / "lib")
    words = ["--arch", "sm_90", "--runtime", "command", "--python", python, "--root", str(scratch / "root"), "--work", str(scratch / "work")]
    command = [sys.executable, "-m", "baker", "build", "--json", *words, "--output", f"oci:{scratch / 'image'}", "--"]
    program = scratch / "program"  # where any user may read
    shutil.copytree(bed.HERE / "stub", program / "stub")
    shutil.copy(bed.HERE / "kernels.py", program)
    env = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "BAKER_VIRTUAL_GPU": "1", "PYTHONPATH": str(bed.REPOSITORY)}
    done = subprocess.run([*command, "python", str(program / "kernels.py")], env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    document = json.loads(done.stdout)
    assert document["verdict"] == "virtual", document
    return Ground(python, libraries, open_image(Oci(), Oci().read(document["reference"])), scratch)


def play(ground: Ground, row: Row, *, forced: bool) -> dict[str, Any]:
    """One run of the program: {"said", "word", "outcome", "hits", "error"}; with `forced` live is filled unchecked and `start` left out."""
    root = ground.scratch / "elsewhere" if row.moved else ground.root
    for place in (root, ground.root):  # an image that lies at two roots would read the other one's files
        shutil.rmtree(place, ignore_errors=True)
    unpack(ground.opened.layer_paths, root, prefix=str(ground.root))
    (cache_set,) = ground.opened.manifest.sets
    command = [*cache_set.serve["program"], *cache_set.serve["argv"]]
    status = ground.scratch / "status.json"
    status.unlink(missing_ok=True)
    env = environment(ground, row, root, status)
    if forced:
        jobs = [fill.Job(kind, f"{root}/sets/{cache_set.name}/{kind.name}") for kind in cache_set.kinds]
        fill.fill(Live(f"{root}/live", False, -1), "sha256:" + "0" * 64, cache_set.name, jobs, [])
        link = root / "live" / ".libcuda" / "libcuda.so.1"
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(Path(env["LD_LIBRARY_PATH"]) / "libcuda.so.1")
    else:
        command = [ground.python, "-I", "-S", f"{root}/start", "--", *command]
    if row.uid:
        for path in [root / "live", *(root / "live").rglob("*")]:
            os.lchown(path, row.uid, 0)
        command = ["setpriv", "--reuid", str(row.uid), "--regid", "0", "--clear-groups", *command]
    if row.read_only:
        live = 'mount -t tmpfs tmpfs "$1/live"; ' if not forced else ""
        script = f'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; {live}shift; exec "$@"'
        command = ["unshare", "-m", "sh", "-ec", script, "sh", str(root), *command]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    said = json.loads(status.read_text()) if status.exists() else {}
    hits = json.loads(done.stdout.splitlines()[-1])["hits"] if done.returncode == 0 and done.stdout else []
    outcome = "crash" if done.returncode else "hit" if all(hits) else "miss" if not any(hits) else "partial"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    kind = said.get("kinds", {}).get(
        KIND, {"state": "hidden", "codes": [detail["code"] for detail in said.get("details", []) if detail["severity"] == "hard"]}
    )
    return {
        "said": kind["state"],
        "codes": kind["codes"],
        "word": said.get("baker", ""),
        "outcome": outcome,
        "hits": f"{sum(hits)} of {len(hits)}",
        "error": lines[-1][-200:] if done.returncode and lines else "",
    }


def environment(ground: Ground, row: Row, root: Path, status: Path) -> dict[str, str]:
    """The image's, on the row's machine."""
    libraries = bed.build(ground.scratch / "usr" / "lib64") if row.driver_elsewhere else ground.libraries
    home = ground.scratch / "home"
    home.mkdir(exist_ok=True)
    home.chmod(0o777)
    status.parent.chmod(0o777)
    path = os.environ["PATH"]
    if row.tools is not None:
        directory = ground.scratch / f"bin-{row.name}"
        directory.mkdir(exist_ok=True)
        for name in row.tools:
            found = shutil.which(name)
            assert found, f"{name} is needed for row {row.name}"
            (directory / name).unlink(missing_ok=True)
            (directory / name).symlink_to(found)
        path = str(directory)
    image = {name: value.replace(str(ground.root), str(root)) if row.moved else value for name, value in ground.opened.env.items() if name != "PATH"}
    fixed = {"PATH": path, "LD_LIBRARY_PATH": str(libraries), "HOME": str(home), "TMPDIR": str(home), "BAKER_STATUS": str(status)}
    return {**fixed, **image, **row.env}


def judge(row: Row, through: Mapping[str, Any], forced: Mapping[str, Any]) -> dict[str, Any]:
    """Whether what start said is what Triton did."""
    shown = through["said"] == "shown"
    agrees = through["outcome"] == "hit" if shown else forced["outcome"] != "hit"
    return {
        "row": row.name,
        "why": row.why,
        "start": through["said"],
        "codes": sorted(set(through["codes"])),
        "through": {key: through[key] for key in ("outcome", "hits", "error")},
        "forced": {key: forced[key] for key in ("outcome", "hits", "error")},
        "agrees": agrees or bool(row.reason),
        "reason": row.reason if not agrees else "",
    }


def run(ground: Ground, say: Any = print) -> dict[str, Any]:
    """All rows, judged."""
    rows = []
    for row in ROWS:
        judged = judge(row, play(ground, row, forced=False), play(ground, row, forced=True))
        rows.append(judged)
        say(
            f"{row.name}: {judged['start']}; {judged['through']['outcome']}, forced {judged['forced']['outcome']}"
            + ("" if judged["agrees"] else "  DISAGREES")
        )
    (cache_set,) = ground.opened.manifest.sets
    kind = next(kind for kind in cache_set.kinds if kind.name == KIND)
    return {
        "first_line": FIRST_LINE,
        "versions": {name: cache_set.builder.get(name) for name in ("pkg.triton", "python.version", "gpu.name", "driver.version", "cuda.driver_api")},
        "factors": dict(kind.factors),
        "rows": rows,
        "disagreements": [row["row"] for row in rows if not row["agrees"]],
    }


def markdown(table: Mapping[str, Any]) -> str:
    """The page for people."""
    lines = ["# Triton's caches on other machines", "", table["first_line"], ""]
    lines += [
        ", ".join(f"{name} {value}" for name, value in table["versions"].items() if value) + f"; {table['factors']['kernels']} kernels, lean.",
        "",
    ]
    lines += ["| row | what differs | start says | through start | filled unchecked | agrees |", "|---|---|---|---|---|---|"]
    for row in table["rows"]:
        codes = f" ({', '.join(row['codes'])})" if row["codes"] and row["start"] != "shown" else ""
        cells = [f"{row[how]['outcome']}, {row[how]['hits']}" if row[how]["outcome"] != "crash" else "crash" for how in ("through", "forced")]
        agrees = ("yes" if row["agrees"] else "NO") + (f": {row['reason']}" if row["reason"] else "")
        lines.append(f"| {row['row']} | {row['why']} | {row['start']}{codes} | {cells[0]} | {cells[1]} | {agrees} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Bake, play, write."""
    parser = argparse.ArgumentParser(description="Triton's truth table on the quick stand-in.")
    parser.add_argument("--python", required=True)
    parser.add_argument("--out", type=Path, default=bed.REPOSITORY / "docs" / "evidence" / "truth-table-triton")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="baker-triton-") as directory:
        scratch = Path(directory)
        scratch.chmod(0o755)
        table = run(bake(os.path.abspath(given.python), scratch))  # noqa: PTH100 - a virtual environment is a link
        text = json.dumps(table, indent=1).replace(directory, "<scratch>")
    for suffix, content in (("json", text + "\n"), ("md", markdown(json.loads(text)))):
        given.out.with_name(f"{given.out.name}.{suffix}").write_text(content)  # with_suffix would cut "-3.8"
    print(json.dumps({"rows": len(table["rows"]), "disagreements": table["disagreements"]}))
    return 1 if table["disagreements"] else 0


if __name__ == "__main__":
    sys.exit(main())
