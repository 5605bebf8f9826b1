"""`make vgpu-e2e`: the real vLLM on the virtual GPU, baked, proven and played; each part leaves its evidence in docs/evidence.

`python -m tests.vgpu.suite --bed .vgpu [--only table,tp2] [--python EXE] [--suffix -0.32]`. Parts do not stop one another; the exit code says.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from baker.engines.oci import Oci
from baker.pack.unpack import unpack
from baker.steps.images import open_image
from tests.vgpu import models
from tests.vgpu.machines import machine
from tests.vgpu.table import __main__ as table
from tests.vgpu.table import render

REPOSITORY = Path(__file__).parents[2]
BED_PROFILE = str(REPOSITORY / "tests" / "vgpu" / "bed.yaml")
SERVE = ("--max-model-len", "2048", "--max-num-seqs", "16")
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
FIRST_LINE = "Virtual GPU: no kernel ran. Keys, files and load lines are those of the real code; tokens and times mean nothing."
FLASHINFER_ROWS = "same,driver-minor,h200,cuda-home,a100"
DEEP_GEMM_ROWS = "same,driver-minor,h200,h100-pcie,cuda-home"
LIMIT_S = 5400


@dataclass
class Suite:
    """Where the bed is and where evidence goes."""

    bed: Path
    python: str
    out: Path
    suffix: str = ""
    failures: list[str] = field(default_factory=list)

    def machine(self, **changes: Any) -> Path:
        """A machine folder of that make."""
        name = "-".join(f"{key}{value}" for key, value in sorted(changes.items())) or "h100"
        return machine(self.bed / "lib", self.bed / "machines" / name, **changes)

    def model(self, name: str) -> Path:
        """The dense model, or one of models.FAMILIES."""
        tokenizer = models.dense(self.bed / "models" / "dense", self.python, self.environment(self.machine()))
        return tokenizer if name == "dense" else models.family(name, self.bed / "models" / name, tokenizer)

    def environment(self, folder: Path, **more: str) -> dict[str, str]:
        """This host's, on that machine."""
        return {**os.environ, "LD_LIBRARY_PATH": str(folder), "LIBRARY_PATH": str(folder), "BAKER_VIRTUAL_GPU": "1", **more}

    def bake(
        self,
        name: str,
        *options: str,
        model: str = "dense",
        on: Mapping[str, Any] | None = None,
        serve: tuple[str, ...] = (),
        profile: str = BED_PROFILE,
        output: str = "",
        switch: bool = True,
    ) -> dict[str, Any]:
        """`baker build --arch sm_90` into `<bed>/images/<name>`; returns its --json document with "exit" and the seconds it took."""
        output = output or f"oci:{self.bed / 'images' / (name + self.suffix)}:baked"
        command = [
            sys.executable, "-m", "baker", "build", "--json", "--arch", "sm_90", "--model", str(self.model(model)), "--weights", "dummy",
            "--profile", profile, "--python", self.python, "--root", str(self.bed / "root"),
            "--work", str(self.bed / "work" / (name + self.suffix)), "--output", output, *options, "--", *SERVE, *serve,
        ]  # fmt: skip
        env = self.environment(self.machine(**(on or {})))
        if not switch:
            env.pop("BAKER_VIRTUAL_GPU")
        began = time.monotonic()
        done = subprocess.run(command, env=env, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
        document: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {"stdout": done.stdout}
        return {**document, "exit": done.returncode, "seconds": round(time.monotonic() - began)}

    def scrub(self) -> dict[str, str]:
        """Directories of this machine -> names."""
        python = Path(self.python)
        return {
            str(self.bed / "root"): "/opt/baker", str(self.bed): "<bed>", str(python.parents[1]): "<environment>",
            str(REPOSITORY): "<repository>", str(Path(sys.base_prefix)): "<python>", str(Path.home()): "<home>",
        }  # fmt: skip


def summary(built: Mapping[str, Any]) -> dict[str, Any]:
    """What a bake and its proof showed, without the bulk."""
    if built.get("exit") != 0:
        return {"exit": built.get("exit"), "error": built.get("error"), "fallen": built.get("fallen")}
    proof, opened = built["proof"], open_image(Oci(), Oci().read(built["reference"]))
    cache_set = next(s for s in opened.manifest.sets if s.name == built["set"])
    artifacts = [file.path for kind in cache_set.kinds if kind.name == "vllm" for file in kind.files if file.path.endswith("/model")]
    return {
        "exit": 0,
        "seconds": built["seconds"],
        "strategy": built["strategy"],
        "verdict": built["verdict"],
        "fallen": [{"strategy": f["strategy"], "reason": f["reason"]} for f in built["fallen"]],
        "versions": {name: cache_set.builder.get(name) for name in ("pkg.vllm", "pkg.torch", "pkg.triton", "pkg.flashinfer-python", "gpu.name")},
        "kinds": {kind.name: len(kind.files) for kind in cache_set.kinds},
        "artifacts": sorted(path.split("/")[-2] for path in artifacts),
        "cold": {"files": proof["cold"]["files"], "events": proof["cold"]["events"], "engine_init_s": proof["cold"]["phases_s"].get("engine-init")},
        "starts": [
            {
                "name": start["name"],
                "start_said": start.get("verdict"),
                "new": len(start.get("files", {}).get("new", ())),
                "changed": len(start.get("files", {}).get("changed", ())),
                "events": start.get("event_count"),
                "engine_init_s": start.get("phases_s", {}).get("engine-init"),
            }
            for start in proof["starts"]
        ],
        "findings": [f"{f['severity']} {f['code']}: {f['message']}" for f in proof["findings"]],
    }


def good(found: Mapping[str, Any], ranks: int = 1) -> bool:
    """A virtual verdict, an artifact a rank, and no new file in any start."""
    clean = all(start["new"] == start["changed"] == 0 and not start["events"] for start in found.get("starts", ()))
    return found.get("verdict") == "virtual" and len(found.get("artifacts", ())) >= ranks and clean


def part_table(suite: Suite) -> dict[str, Any]:
    """The truth table of an image for one H100."""
    built = suite.bake("table", "--gpu", H100)
    found = {"bake": summary(built)}
    if built["exit"] == 0:
        words = [built["reference"], "--out", str(suite.out / f"truth-table{suite.suffix}"), "--machines", str(suite.bed / "lib")]
        found["ok"] = table.main(words) == 0 and good(found["bake"])
    return found


def part_flashinfer(suite: Suite) -> dict[str, Any]:
    """FlashInfer's sampler on: two sets (H100, H200) in one image, then the rows that matter for its modules."""
    output = f"oci:{suite.bed / 'images' / ('two' + suite.suffix)}:both"
    first = suite.bake("two-h100", "--gpu", H100, "--set", "h100", profile="smoke", output=output)
    second = suite.bake("two-h200", "--gpu", H200, "--set", "h200", profile="smoke", output=output, on={"profile": "h200"})
    found = {"first": summary(first), "second": summary(second)}
    if first["exit"] == second["exit"] == 0:
        words = [output, "--set", "h100", "--rows", FLASHINFER_ROWS, "--machines", str(suite.bed / "lib")]
        found["table"] = table.main([*words, "--out", str(suite.out / f"truth-table-flashinfer{suite.suffix}"), "--title", "FlashInfer's modules"])
        found["picked"] = {name: check(suite, output, name) for name in ("h100", "h200")}
        found["ok"] = found["table"] == 0 and good(found["first"]) and good(found["second"])
        found["ok"] = found["ok"] and all(found["picked"][name]["set"] == name for name in ("h100", "h200"))
    return found


def check(
    suite: Suite, reference: str, profile: str, *, damage: Callable[[Path], None] | None = None, on: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """`start --check` of the unpacked image on a machine: {"exit", "set", "kinds": kind -> state and codes}."""
    opened = open_image(Oci(), Oci().read(reference))
    root = Path(opened.manifest.root)
    unpack(opened.layer_paths, str(root))
    if damage:
        damage(root)
    cache_set = next((s for s in opened.manifest.sets if profile in s.name), opened.manifest.sets[0])
    env = {**suite.environment(suite.machine(**(on or {"profile": profile}))), **opened.env}
    words = [suite.python, "-I", "-S", f"{root}/start", "--check", "--", *cache_set.serve["program"], *cache_set.serve["argv"]]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=120, check=False)
    document = json.loads(done.stdout)
    return {
        "exit": done.returncode,
        "set": document["set"],
        "kinds": {name: [kind["state"], kind["codes"]] for name, kind in document["kinds"].items()},
    }


def part_tp2(suite: Suite) -> dict[str, Any]:
    """Tensor parallel over two GPUs: files and load lines of both ranks; a missing rank hides the kind before the server opens it."""
    two = {"count": 2}
    built = suite.bake("tp2", "--gpu", H100, on=two, serve=("--tensor-parallel-size", "2"))
    found: dict[str, Any] = {"bake": summary(built)}
    if built["exit"] == 0:
        lose = lambda root: _open_up(next(iter(sorted(root.glob("sets/*/vllm/torch_compile_cache/torch_aot_compile/*/rank_1_*/model"))))).unlink()  # noqa: E731
        found["whole"] = check(suite, built["reference"], "h100", on=two)
        found["one_gpu_less"] = check(suite, built["reference"], "h100", on={})
        found["missing_rank"] = check(suite, built["reference"], "h100", on=two, damage=lose)
        found["ok"] = good(found["bake"], 2) and found["whole"]["exit"] == 0 and found["missing_rank"]["kinds"]["vllm"][0] == "hidden"
        found["ok"] = found["ok"] and found["one_gpu_less"]["kinds"]["vllm"][0] == "hidden"
    return found


def _open_up(path: Path) -> Path:
    for directory in path.parents[:8]:
        if directory.stat().st_uid == os.getuid():
            directory.chmod(0o755)
    return path


def _family(name: str, *options: str, ranks: int = 1, **more: Any) -> Callable[[Suite], dict[str, Any]]:
    def part(suite: Suite) -> dict[str, Any]:
        found: dict[str, Any] = {"bake": summary(suite.bake(name, "--gpu", H100, *options, **more))}
        return {**found, "ok": good(found["bake"], ranks)}

    return part


def part_fp8(suite: Suite) -> dict[str, Any]:
    """A block-FP8 model: DeepGEMM's kernels, compiled by the real nvcc, then the rows that matter for them."""
    built = suite.bake("fp8", "--gpu", H100, model="fp8", profile=str(REPOSITORY / "tests" / "vgpu" / "bed-fp8.yaml"))
    found: dict[str, Any] = {"bake": summary(built)}
    if built["exit"] == 0:
        words = [built["reference"], "--rows", DEEP_GEMM_ROWS, "--machines", str(suite.bed / "lib"), "--title", "DeepGEMM's kernels"]
        found["table"] = table.main([*words, "--out", str(suite.out / f"truth-table-fp8{suite.suffix}")])
        found["ok"] = found["table"] == 0 and good(found["bake"]) and found["bake"]["kinds"].get("deep_gemm", 0) > 0
    return found


def part_virtual(suite: Suite) -> dict[str, Any]:
    """A user's bake without the GPU: refused without --virtual, marked with it, choices by time left out."""
    refused = suite.bake("refused", "--gpu", H100, switch=False)
    built = suite.bake("virtual", "--gpu", H100, "--virtual", switch=False)
    found: dict[str, Any] = {"refused": {"exit": refused["exit"], "code": (refused.get("error") or {}).get("code")}, "bake": summary(built)}
    if built["exit"] == 0:
        opened = open_image(Oci(), Oci().read(built["reference"]))
        cache_set = opened.manifest.sets[0]
        chosen = [file.path for kind in cache_set.kinds for file in kind.files if file.path.endswith((".best_config", ".autotune.json"))]
        labels = opened.image.config["config"]["Labels"]
        found |= {"mark": cache_set.raw["virtual"], "label": labels.get("io.baker.virtual"), "chosen_by_time": chosen}
        found["ok"] = (
            good(found["bake"]) and (refused["exit"], found["refused"]["code"]) == (3, "virtual-gpu") and not chosen and found["label"] == "true"
        )
    return found


PARTS: Mapping[str, Callable[[Suite], dict[str, Any]]] = {
    "table": part_table,
    "tp2": part_tp2,
    "flashinfer": part_flashinfer,
    "plain": _family("plain"),
    "moe": _family("moe", model="moe"),
    "mla": _family("mla", model="mla"),
    "dp2": _family("dp2", on={"count": 2}, serve=("--data-parallel-size", "2"), ranks=2),
    "fp8": part_fp8,
    "virtual": part_virtual,
}


def main() -> int:
    """Run the parts; exit 1 when one is not as it must be."""
    parser = argparse.ArgumentParser(description="The vLLM suite on the virtual GPU.")
    parser.add_argument("--bed", type=Path, default=REPOSITORY / ".vgpu")
    parser.add_argument("--python", default="", help="the server's interpreter [default: BED/venv/bin/python]")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs" / "evidence")
    parser.add_argument("--only", default=",".join(name for name in PARTS if name != "plain"), help="plain: one bake, for other versions")
    parser.add_argument("--suffix", default="", help="for evidence of another version")
    given = parser.parse_args()
    bed = given.bed.resolve()
    suite = Suite(bed, given.python or str(bed / "venv" / "bin" / "python"), given.out.resolve(), given.suffix)
    for name in given.only.split(","):
        print(f"== {name}", flush=True)
        try:
            found = PARTS[name](suite)
        except Exception as error:  # noqa: BLE001 - a part that breaks must not stop the others; it fails the suite
            found = {"ok": False, "broke": f"{type(error).__name__}: {error}"}
        document = {"part": name, "first_line": FIRST_LINE, "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"), **found}
        path = suite.out / f"vgpu-{name}{suite.suffix}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render.scrub(json.dumps(document, indent=1) + "\n", suite.scrub()))
        print(f"== {name}: {'ok' if found.get('ok') else 'NOT OK'} ({path.name})", flush=True)
        if not found.get("ok"):
            suite.failures.append(name)
    print(json.dumps({"failed": suite.failures}))
    return 1 if suite.failures else 0


if __name__ == "__main__":
    sys.exit(main())
