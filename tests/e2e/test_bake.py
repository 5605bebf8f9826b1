"""What the one real bake shows: the refused strategy with its evidence, the proof, the image, its start, and the control with other weights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from baker.engines.oci import Oci
from baker.inside.manifest import parse
from baker.pack.reading import LayerReader
from baker.pack.unpack import unpack
from baker.pack.validate import validate
from baker.steps.images import environment, layer_paths, open_image
from tests.e2e.conftest import SECRETS, SERVE, Bake, baker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]


def test_the_aot_strategy_fell_by_evidence(bake: Bake) -> None:
    (fallen,) = bake.document["fallen"]
    assert fallen["strategy"] == "aot"
    assert any("load failure" in line for line in fallen["evidence"]["refused"])
    assert any(path.endswith("/model") for path in fallen["evidence"]["changed"])
    assert bake.document["strategy"] == "inductor"


def test_the_image_is_proven(bake: Bake) -> None:
    proof = bake.document["proof"]
    assert proof["verdict"] == "proven"
    assert [start["name"] for start in proof["starts"]] == ["bare-1", "bare-2", "bare-3", "recorded"]
    for start in proof["starts"]:
        assert start["verdict"] == "compatible"
        assert start["files"]["new"] == start["files"]["changed"] == start["files"]["gone"] == []
        assert start["tokens"]["equal"] == start["tokens"]["prompts"] >= 8
        assert start["tokens"]["length"] >= 24
    recorded = proof["starts"][-1]
    assert recorded["event_count"] == 0
    assert proof["cold"]["events"] >= 1
    torch = [p for p in recorded["processes"] if p["torch"]]
    assert len(torch) >= 3
    assert all(p["observed"] for p in torch)
    assert not [f for f in proof["findings"] if f["severity"] == "hard"]
    assert "tokens-not-meaningful" not in {f["code"] for f in proof["findings"]}


def test_the_reference_tokens_could_differ(bake: Bake) -> None:
    (cache_set,) = open_image(Oci(), Oci().read(bake.reference)).manifest.sets
    tokens = cache_set.serve["reference"]
    assert len(tokens) >= 8
    assert all(len(set(ids)) >= 10 for ids in tokens)
    assert len({tuple(ids) for ids in tokens}) == len(tokens)


def test_every_digest_is_right(bake: Bake) -> None:
    image = Oci().read(bake.reference)
    blob = image.blobs / image.digest.removeprefix("sha256:")
    assert validate(bake.layout, {"mediaType": image.manifest["mediaType"], "digest": image.digest, "size": blob.stat().st_size}) == []
    assert image.digest == bake.document["digest"]


def test_no_secret_in_any_blob_log_or_document(bake: Bake) -> None:
    values = [value.encode() for value in SECRETS.values()]
    for path in [p for p in bake.directory.rglob("*") if p.is_file() and not p.is_symlink()]:
        data = path.read_bytes()
        assert not any(value in data for value in values), path
    for path in layer_paths(Oci().read(bake.reference)):
        with LayerReader(path) as reader:
            for info in reader:
                content = b"".join(reader.content(info)) if info.isfile() else b""
                assert not any(value in content for value in values), info.name


def test_inspect_shows_what_was_proved(bake: Bake) -> None:
    done = baker("inspect", "--json", bake.reference)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == "proven"
    assert {kind["name"] for kind in document["sets"][0]["kinds"]} >= {"inductor"}
    assert document["entrypoint"][:3] == [str(bake.python), "-I", "-S"]


def test_no_weights_and_no_debris_in_the_layers(bake: Bake) -> None:
    names = []
    for path in layer_paths(Oci().read(bake.reference)):
        with LayerReader(path) as reader:
            names += [info.name for info in reader]
    assert any(name.endswith(".so") for name in names)
    assert not [n for n in names if n.endswith((".lock", ".safetensors", ".gch")) or "vllm_dist_" in n]
    root = str(bake.root).strip("/")
    assert [n.rstrip("/") for n in names if n.startswith(f"{root}/live/") and n.rstrip("/").count("/") > root.count("/") + 2] == []


@pytest.fixture
def unpacked(bake: Bake) -> Iterator[tuple[Path, dict[str, str]]]:
    """The image at its own root, as a container would have it, with its ENV."""
    image = Oci().read(bake.reference)
    unpack(layer_paths(image), bake.root)
    yield bake.root, {**environment(image), "PATH": environment(image)["PATH"] + ":" + os.environ["PATH"], "HOME": "/tmp", "LANG": "C.UTF-8"}
    shutil.rmtree(bake.root / "live", ignore_errors=True)


def _start(bake: Bake, env: dict[str, str], **more: str) -> tuple[int, dict[str, Any], str]:
    """`start` on the unpacked image, with a harmless command in the server's place but the server's arguments."""
    image = Oci().read(bake.reference)
    config = image.config["config"]
    command = [*config["Entrypoint"], *config["Cmd"]]
    done = subprocess.run([*command[:4], "--check", *command[4:]], env={**env, **more}, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_start_finds_the_unpacked_image_compatible(bake: Bake, unpacked: tuple[Path, dict[str, str]]) -> None:
    code, verdict, errors = _start(bake, unpacked[1])
    assert (code, verdict.get("baker")) == (0, "compatible"), errors


def test_one_byte_flipped_in_each_file(bake: Bake, unpacked: tuple[Path, dict[str, str]]) -> None:
    root, env = unpacked
    manifest = parse((root / "manifest.json").read_bytes())
    files = [(root / "sets" / s.name / kind.name / entry.path, entry) for s in manifest.sets for kind in s.kinds for entry in kind.files]
    found: dict[str, list[str]] = {"full": [], "code": []}
    for path, entry in files:
        data = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        path.chmod(0o444)
        for level, seen in found.items():
            code, verdict, _ = _start(bake, env, BAKER_VERIFY=level)
            if code != 0 and entry.path in json.dumps(verdict):
                seen.append(entry.path)
        path.chmod(0o644)
        path.write_bytes(data)
        path.chmod(0o444)
    print(f"full: {len(found['full'])} of {len(files)}; code: {len(found['code'])} of {len(files)}")
    assert len(found["full"]) == len(files)
    assert {e.path for _, e in files} - set(found["code"]) == {e.path for _, e in files if e.role == "inert"}


def test_other_weights_of_the_same_shape_fail_the_proof(bake: Bake, tmp_path: Path) -> None:
    """The control: equality is no accident. One tensor of the model is replaced by another of the same shape."""
    weights = bake.model / "model.safetensors"
    saved = tmp_path / "saved"
    shutil.copy2(weights, saved)
    data = bytearray(weights.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    name = next(n for n in sorted(header) if n.endswith("layers.0.mlp.down_proj.weight"))
    begin, end = (8 + length + offset for offset in header[name]["data_offsets"])
    data[begin:end] = data[begin + 2 : end] + data[begin : begin + 2]  # bfloat16: every value moves one place, all stay finite
    try:
        weights.write_bytes(data)
        done = baker("prove", "--json", bake.reference, "--work", str(tmp_path / "work"))
    finally:
        shutil.copy2(saved, weights)
    assert done.returncode == 5, done.stderr
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "proof-tokens"


def test_term_during_a_real_start_leaves_nothing(bake: Bake, tmp_path: Path) -> None:
    arguments = ("build", "--arch", "cpu", "--model", str(bake.model), "--profile", "smoke", "--python", str(bake.python))
    places = ("--root", str(tmp_path / "root"), "--work", str(tmp_path / "work"), "--output", f"oci:{tmp_path / 'image'}")
    process = subprocess.Popen([sys.executable, "-m", "baker", *arguments, *places, "--", *SERVE], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    log = tmp_path / "work" / "logs" / "aot-round-1.log"
    while time.monotonic() < deadline and not (log.exists() and "Initializing a V1 LLM engine" in log.read_text(errors="replace")):
        time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143, errors
    assert _processes_of(tmp_path) == []
    assert json.loads((tmp_path / "work" / "state.json").read_text())["stage"] == "warm-up"


def _processes_of(directory: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(directory).encode() in path.read_bytes():
                found.append(path.parent.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
