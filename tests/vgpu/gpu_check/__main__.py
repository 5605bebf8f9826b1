"""`make gpu-check`: what this machine's GPU does with baker's caches, as one JSON and one Markdown file under docs/evidence.

`python -m tests.vgpu.gpu_check --python EXE [--quick] [--out DIR] [--diff OTHER.json]`. torch and Triton are enough for a part; with vLLM in that
environment a tiny model is baked and proven, and the rows of the truth table that need no other machine are played. The first line says whether
the GPU is real. `--diff` compares keys, autotune winners and device attributes with the file of another run (real against virtual).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baker.caches import by_name
from baker.inside import interpreter
from baker.inside.probe import GPU, observe
from baker.spec import slug
from tests.vgpu import models
from tests.vgpu.suite import BED_PROFILE, SERVE, summary
from tests.vgpu.table import __main__ as table
from tests.vgpu.table import render

REPOSITORY = Path(__file__).parents[3]
KEYS = Path(__file__).parent / "keys.py"
VIRTUAL, REAL = "VIRTUAL GPU: no kernel ran; keys, files and load lines are real, tokens and times mean nothing.", "Real GPU."


def compiled(python: str, scratch: Path) -> dict[str, Any]:
    """keys.py twice in the same directories: {"first", "second", "problems", "ok"}; the second must hit everything."""
    cache = scratch / "live"
    env = {**os.environ, "TRITON_CACHE_DIR": str(cache / "triton"), "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")}
    env |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1", "HOME": str(scratch)}
    found: dict[str, Any] = {}
    for name in ("first", "second"):
        done = subprocess.run([python, str(KEYS)], env=env, capture_output=True, text=True, timeout=500, check=False)
        if done.returncode:
            return {**found, "ok": False, "error": done.stderr[-1500:]}
        found[name] = json.loads(done.stdout.splitlines()[-1])
    paths = sorted(path.relative_to(cache / "triton").as_posix() for path in (cache / "triton").rglob("*") if path.is_file())
    found["problems"] = [finding.line() for finding in by_name("triton").problems(cache / "triton", paths)]
    second = found["second"]
    found["ok"] = not found["problems"] and second["triton_misses"] == 0 and not second["inductor"].get("fxgraph_cache_miss")
    return found


def bake(python: str, scratch: Path, arch: str) -> tuple[dict[str, Any], str]:
    """A tiny model baked and proven on this GPU: its summary, and the reference of the image ("" when it failed)."""
    model = models.dense(scratch / "model", python, os.environ)
    command = [
        sys.executable, "-m", "baker", "build", "--json", "--arch", arch, "--model", str(model), "--profile", BED_PROFILE, "--python", python,
        "--root", str(scratch / "root"), "--work", str(scratch / "work"), "--output", f"oci:{scratch / 'image'}:check", "--", *SERVE,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=3000, check=False)
    document = json.loads(done.stdout) if done.stdout.startswith("{") else {"error": done.stdout}
    return summary({**document, "exit": done.returncode, "seconds": 0}), document.get("reference", "")


def rows(reference: str, out: Path) -> dict[str, Any]:
    """The rows of the truth table that need no other machine."""
    with contextlib.redirect_stdout(sys.stderr):
        code = table.main([reference, "--out", str(out), "--here"])
    played = json.loads(out.with_suffix(".json").read_text()) if out.with_suffix(".json").exists() else {}
    return {"exit": code, "rows": len(played.get("rows", ())), "disagreements": played.get("disagreements"), "table": out.with_suffix(".md").name}


def difference(mine: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Keys, winners and attributes: how many are equal, which differ."""
    a, b = mine["compiled"]["first"], other["compiled"]["first"]
    keys = {}
    for name in a["keys"]:
        here, there = set(a["keys"][name]), set(b["keys"][name])
        keys[name] = {"here": len(here), "there": len(there), "equal": len(here & there)}
    numbers = a["attributes"].keys() | b["attributes"].keys()
    differ = {
        n: [a["attributes"].get(n), b["attributes"].get(n)] for n in sorted(numbers, key=int) if a["attributes"].get(n) != b["attributes"].get(n)
    }
    return {"versions": [a["versions"], b["versions"]], "devices": [a["device"], b["device"]], "keys": keys, "attributes": differ}


def markdown(document: Mapping[str, Any]) -> str:
    """The page for people."""
    first = (document.get("compiled") or {}).get("first") or {}
    lines = ["# GPU check", "", document["first_line"], "", f"Date: {document['date']}", ""]
    lines += [f"- {name}: {value}" for name, value in document["facts"].items() if value is not None]
    lines += [f"- {name}: {value}" for name, value in (first.get("versions") or {}).items()]
    part = document.get("compiled") or {}
    lines += ["", f"## torch and Triton: {'ok' if part.get('ok') else 'NOT OK'}", ""]
    for name in ("first", "second"):
        if name in part:
            run = part[name]
            lines.append(f"- {name} process: Triton {run['triton_hits']} hits, {run['triton_misses']} misses; Inductor {run['inductor']}")
    lines += [f"- {text}" for text in part.get("problems", ())] + ([part["error"]] if "error" in part else [])
    for name in ("vllm", "rows", "diff"):
        if name in document:
            lines += ["", f"## {name}", "", "```json", json.dumps(document[name], indent=1), "```"]
    return "\n".join([*lines, ""])


def main() -> int:
    """Run the parts; exit 0 when each is as it must be, 3 without a GPU."""
    parser = argparse.ArgumentParser(description="Check baker on the GPU of this machine.")
    parser.add_argument("--python", default=sys.executable, help="the server's interpreter")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs" / "evidence")
    parser.add_argument("--quick", action="store_true", help="torch and Triton only")
    parser.add_argument("--diff", type=Path, help="JSON of another run to compare with")
    given = parser.parse_args()
    facts = observe(GPU)
    if not facts.get("gpu.count"):
        print(f"no GPU: {facts.get('gpu.error')}; on a machine without one run it on the bed (tests/vgpu/README.md)", file=sys.stderr)
        return 3
    virtual = bool(facts.get("gpu.virtual"))
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")
    document: dict[str, Any] = {"first_line": VIRTUAL if virtual else REAL, "date": date}
    document["facts"] = {name: facts[name] for name in GPU if name != "cuda.library"}
    out = given.out / f"gpu-check-{'virtual-' if virtual else ''}{slug(str(facts['gpu.name']))}-{date}"
    names = {str(REPOSITORY): "<repository>", str(Path(sys.base_prefix)): "<python>", str(Path(given.python).parents[1]): "<environment>"}
    print(document["first_line"], flush=True)
    if virtual:
        os.environ["BAKER_VIRTUAL_GPU"] = "1"
    with tempfile.TemporaryDirectory(prefix="baker-gpu-check-") as directory:
        scratch = Path(directory)
        scratch.chmod(0o755)
        names[directory] = "<scratch>"
        document["compiled"] = compiled(given.python, scratch)
        distributions = interpreter.packages(["vllm"], interpreter.python_site(given.python)["dist_info"])[0]
        if not given.quick and distributions.get("vllm"):
            document["vllm"], reference = bake(given.python, scratch, "sm_" + str(facts["gpu.cc"]).replace(".", ""))
            if reference:
                document["rows"] = rows(reference, out.with_name(out.name + "-rows"))
    if given.diff:
        document["diff"] = difference(document, json.loads(given.diff.read_text()))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(render.scrub(json.dumps(document, indent=1) + "\n", names))
    out.with_suffix(".md").write_text(render.scrub(markdown(document), names))
    wanted = "virtual" if virtual else "proven"
    bad = [not document["compiled"]["ok"], document.get("vllm", {}).get("verdict", wanted) != wanted, bool(document.get("rows", {}).get("exit"))]
    print(f"{'NOT OK' if any(bad) else 'ok'}: {out.with_suffix('.md')}", flush=True)
    return int(any(bad))


if __name__ == "__main__":
    sys.exit(main())
