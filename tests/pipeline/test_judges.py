"""Each fault that must fell a proof, shown to fell it: the image is good, the runtime changes between bake and proof."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from baker.engines.oci import Oci
from baker.pack.unpack import remove, unpack
from baker.steps.images import environment, layer_paths, open_image
from tests.pipeline.bakes import LOADS, Done, Site, copy_runtime, run

# Name -> (faults at the proof, code of the error, words that its message must hold)
FAULTS: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "stray": ({"stray": True}, "proof-new-files", ("home/stray.txt", "tmp/stray.so")),
    "new-file": ({"new_file": True}, "proof-new-files", ("live/vllm/",)),
    "tokens": ({"tokens": "random"}, "proof-tokens", ("tokens differ", "'position': ")),
    "uncounted": ({"usage_off": 1, "usage_only": 24}, "proof-uncounted", ("pair", "usage.completion_tokens")),
    "recompile": ({"recompile": True}, "proof-new-files", ("/inductor_cache/",)),
    "refused": ({"aot": "refused"}, "proof-new-files", ("rank_0_0/model",)),
    "unobserved": ({"unobserved": True}, "proof-unobserved", ("without the recorder", "python -I -c")),
    "kernels": ({"kernels": ["fused_moe"], "step_s": 0}, "proof-new-files", ("fused_moe",)),
    "died": ({"die": {"when": "request", "at": 3, "first": "RuntimeError: at the proof"}}, "proof-start-failed", ("died", "in stage")),
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, python: str) -> Site:
    """A site with an image that nobody proved yet, and a runtime of its own."""
    directory = tmp_path_factory.mktemp("judged")
    place = Site(directory, copy_runtime(python, directory / "rt"), LOADS)
    done = place.build("--json", "--no-prove")
    assert done.code == 0, done.text
    return place


@pytest.mark.parametrize("name", list(FAULTS))
def test_the_fault_fells_the_proof(site: Site, name: str) -> None:
    faults, code, words = FAULTS[name]
    site.faults.write_text(json.dumps(faults))
    done = site.build("--json")
    assert done.code == 5, done.text
    assert done.error["code"] == code, done.text
    for word in words:
        assert word in done.error["message"], done.text
    record = json.loads((site.work / "proof.json").read_text())
    assert record["verdict"] == "failed"
    assert code in {f["code"] for f in record["findings"] if f["severity"] == "hard"}
    # The image stays what it was: unproven.
    assert run("inspect", "--json", f"oci:{site.image}").document["verdict"] == "unproven"


def test_other_weights_of_the_same_size_fail_the_proof(baked: tuple[Site, Done], tmp_path: Path) -> None:
    site, done = baked
    weights = site.model / "model.safetensors"
    data = weights.read_bytes()
    try:
        weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        again = run("prove", "--json", done.document["reference"], "--work", str(tmp_path / "work"))
    finally:
        weights.write_bytes(data)
    assert again.code == 5, again.text
    assert again.error["code"] == "proof-tokens"
    assert "compare the weights first" in again.error["remedy"]


def test_another_model_directory_is_refused_by_name(baked: tuple[Site, Done], tmp_path: Path) -> None:
    site, done = baked
    other = Site(tmp_path / "other", site.python, {"new": "script"})
    again = run("prove", "--json", done.document["reference"], "--model", str(other.model), "--work", str(tmp_path / "work"))
    assert again.code == 2, again.text
    assert (again.error["code"], "sim.json" in again.error["found"]) == ("model-differs", True)


@pytest.fixture
def unpacked(baked: tuple[Site, Done]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The finished image at its own root: its command line and its ENV."""
    site, done = baked
    image = Oci().read(done.document["reference"])
    unpack(layer_paths(image), str(site.root))
    config = image.config["config"]
    env = {**environment(image), "HOME": "/tmp", "LANG": "C.UTF-8"}
    yield [*config["Entrypoint"], *config["Cmd"]], {**env, "PATH": env["PATH"] + ":" + os.environ["PATH"]}
    for entry in site.root.iterdir():
        if entry.name != ".baker.lock":
            remove(entry)


def _check(command: list[str], env: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, verdict, and everything that was said."""
    done = subprocess.run([*command[:4], "--check", *command[4:]], env=env, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, json.loads(done.stdout or "{}").get("baker", ""), done.stdout + done.stderr


def test_start_finds_the_image_compatible(unpacked: tuple[list[str], dict[str, str]]) -> None:
    code, verdict, errors = _check(*unpacked)
    assert (code, verdict) == (0, "compatible"), errors


def test_another_serve_argument_is_named(unpacked: tuple[list[str], dict[str, str]]) -> None:
    """O-04."""
    command, env = unpacked
    code, verdict, errors = _check([*command[:-1], "2048"], env)
    assert (code, verdict) == (11, "cold"), errors
    assert "--max-model-len" in errors
    assert "2048" in errors
    assert "4224" in errors
    assert _check([*command, "--port", "8123"], env)[0] == 0


def test_a_hashed_variable_is_named_and_a_neutral_one_is_not(unpacked: tuple[list[str], dict[str, str]]) -> None:
    """O-02."""
    command, env = unpacked
    code, verdict, errors = _check(command, {**env, "VLLM_LOOPBACK_IP": "10.0.0.7"})
    assert (code, verdict) == (11, "cold"), errors
    assert "VLLM_LOOPBACK_IP" in errors
    assert "10.0.0.7" in errors
    code, verdict, errors = _check(command, {**env, "VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.7"})
    assert (code, verdict) == (0, "compatible"), errors


def test_the_manifest_pins_what_the_image_pins(site: Site) -> None:
    """A kind that stayed empty is pinned in both, as it was at the bake: else its owner would write to HOME."""
    image = Oci().read(f"oci:{site.image}")
    serve = open_image(Oci(), image).manifest.sets[0].serve
    env = environment(image)
    assert {name: env.get(name) for name in serve["env"]} == serve["env"]
    assert env["TORCHINDUCTOR_CACHE_DIR"].endswith("/live/inductor")
