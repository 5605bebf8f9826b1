"""`check`, `explain` and `start` decide by the same code: for each difference the three say the same of every kind."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from baker.engines.oci import Oci
from baker.pack.unpack import unpack
from baker.steps.images import Opened, open_image
from tests.pipeline.bakes import Done, Site, run

CHANGES: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "nothing": ((), {}),
    "neutral argument": (("--seed", "7"), {}),
    "hard argument": (("--dtype", "float32"), {}),
    "watched variable": ((), {"VLLM_LOOPBACK_IP": "10.0.0.7"}),  # case O-02
    "neutral variable": ((), {"VLLM_NIXL_SIDE_CHANNEL_HOST": "10.0.0.7"}),
    "cache variable elsewhere": ((), {"TORCHINDUCTOR_CACHE_DIR": "/elsewhere"}),  # case O-05
    "no compiler": ((), {"CXX": "/no/such/compiler"}),  # case O-16
}


@pytest.fixture(scope="module")
def image(baked: tuple[Site, Done]) -> tuple[str, Opened]:
    _, done = baked
    reference = done.document["reference"]
    opened = open_image(Oci(), Oci().read(reference))
    unpack(opened.layer_paths, opened.manifest.root)
    return reference, opened


def start_says(opened: Opened, words: tuple[str, ...], env: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """`start --check` of the unpacked image."""
    serve = opened.manifest.sets[0].serve
    command = [serve["python"], "-I", "-S", f"{opened.manifest.root}/start", "--check", "--", *serve["program"], *serve["argv"], *words]
    done = subprocess.run(command, env={**os.environ, **opened.env, **env}, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, json.loads(done.stdout)


def kinds(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: (kind["state"], kind["codes"]) for name, kind in document["kinds"].items()}


@pytest.mark.parametrize("change", CHANGES)
def test_start_and_check_say_the_same(change: str, image: tuple[str, Opened]) -> None:
    reference, opened = image
    words, env = CHANGES[change]
    code, said = start_says(opened, words, env)
    given = [part for name, value in {"PATH": os.environ["PATH"], **env}.items() for part in ("--env", f"{name}={value}")]
    argv = opened.manifest.sets[0].serve["argv"]
    done = run("check", reference, "--json", *given, "--", *argv, *words)
    assert done.code == code, done.text
    assert kinds(done.document) == kinds(said)
    assert done.document["word"] == said["baker"]


def test_the_facts_of_another_node_are_taken_from_what_start_printed(image: tuple[str, Opened], tmp_path: Path) -> None:
    reference, opened = image
    _, said = start_says(opened, (), {})
    (tmp_path / "node.json").write_text(json.dumps(said))
    assert run("check", reference, "--facts", str(tmp_path / "node.json")).code == 0
    said["facts"]["cpu.isa"] = ["fpu"]
    (tmp_path / "lesser.json").write_text(json.dumps(said["facts"]))
    done = run("check", reference, "--json", "--facts", str(tmp_path / "lesser.json"))
    assert done.code == 11, done.text
    assert {"fact-differs"} == {code for kind in done.document["kinds"].values() for code in kind["codes"]}
    (tmp_path / "silent.json").write_text("{}")
    done = run("check", reference, "--json", "--facts", str(tmp_path / "silent.json"))
    assert done.code == 11
    assert "silent.json does not tell" in done.out  # unknown is never silently fine


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"facts": 3}', "\x00", "[" * 100_000])
def test_a_file_without_facts_is_a_usage_error(content: str, image: tuple[str, Opened], tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(content)
    done = run("check", image[0], "--json", "--facts", str(tmp_path / "bad.json"))
    assert (done.code, done.error["code"]) == (2, "bad-facts"), done.text


def test_an_image_explains_itself_as_the_same(image: tuple[str, Opened]) -> None:
    done = run("explain", image[0], image[0], "--json")
    assert done.code == 0, done.text
    assert (done.document["same"], done.document["word"], done.document["plan"]) == (True, "compatible", [])
    assert all(count["differ"] == count["only_a"] == count["only_b"] == 0 for count in done.document["files"].values())


def test_a_running_server_is_explained(image: tuple[str, Opened]) -> None:
    reference, opened = image
    serve = opened.manifest.sets[0].serve
    env = {**os.environ, **opened.env, "VLLM_LOOPBACK_IP": "10.0.0.7", "HF_TOKEN": "hf_" + "x" * 34}
    # A process with the server's command line: what explain reads is the kernel's, not the server's.
    script = ["-c", "import time; time.sleep(60)"]
    server = subprocess.Popen([serve["python"], *script, *serve["argv"]], env=env)
    try:
        done = run("explain", reference, f"pid:{server.pid}", "--json")
    finally:
        server.kill()
        server.wait()
    assert done.code == 0, done.text
    codes = {finding["code"] for finding in done.document["findings"] if finding["severity"] == "hard"}
    assert codes == {"program-differs", "variable-differs"}
    assert "hf_xxx" not in done.text


@pytest.mark.parametrize(("second", "code"), [("pid:x", "bad-pid"), ("pid:4194999", "no-process"), ("oci:/nowhere", None)])
def test_a_second_side_that_is_not_there(second: str, code: str | None, image: tuple[str, Opened]) -> None:
    done = run("explain", image[0], second, "--json")
    assert done.code in (2, 3, 5), done.text
    assert code in (None, done.error["code"])
