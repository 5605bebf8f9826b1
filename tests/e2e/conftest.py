"""One real bake a test run, shared by every end-to-end test: the real vLLM on CPU, a tiny model made on the spot, the unmodified command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Values that must appear in no blob and no log (case O-49); the hub client and cloud tools read variables of these names.
SECRETS = {
    "HF_TOKEN": "hf_TESTSECRETtestsecret0123456789",
    "AWS_SECRET_ACCESS_KEY": "TESTaws/SECRET+0123456789abcdefghij",
    "REGISTRY_PASSWORD": "TESTpass-0123456789",
}
SERVE = ("--max-model-len", "4224", "--max-num-seqs", "16", "--dtype", "bfloat16", "--kv-cache-memory-bytes", "1073741824")


@dataclass(frozen=True)
class Bake:
    """A finished `baker build` of the real runtime."""

    directory: Path
    python: Path
    model: Path
    root: Path
    reference: str
    document: dict[str, Any]

    @property
    def layout(self) -> Path:
        """The OCI layout."""
        return self.directory / "image"


def baker(*args: str, timeout: float = 1500, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a user would, with its own state directory."""
    return subprocess.run(
        [sys.executable, "-m", "baker", *args], capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, **env}
    )


@pytest.fixture(scope="session")
def runtime_python() -> Path:
    """The interpreter of the CPU runtime. `make test` sets it; without it these tests fail in CI and are skipped, visibly, elsewhere."""
    python = os.environ.get("BAKER_RUNTIME_PYTHON", "")
    if not python:
        if os.environ.get("CI"):
            pytest.fail("BAKER_RUNTIME_PYTHON is not set: run `make test`")
        pytest.skip("BAKER_RUNTIME_PYTHON is not set: run `make test`")
    return Path(python).absolute()


@pytest.fixture(scope="session")
def bake(tmp_path_factory: pytest.TempPathFactory, runtime_python: Path) -> Bake:
    """Bake the tiny model for CPU with the real runtime; the profile is the one of BAKER_E2E_PROFILE (default: smoke)."""
    directory = tmp_path_factory.mktemp("bake")
    directory.chmod(0o755)
    model = directory / "model"
    maker = Path(__file__).parents[2] / "bench" / "tiny_model.py"
    subprocess.run([runtime_python, maker, model], check=True, capture_output=True)
    root = directory / "root"
    done = baker(
        *("build", "--json", "--arch", "cpu", "--model", str(model), "--profile", os.environ.get("BAKER_E2E_PROFILE", "smoke")),
        *("--python", str(runtime_python), "--root", str(root), "--work", str(directory / "work"), "--output", f"oci:{directory / 'image'}"),
        *("--", *SERVE),
        XDG_STATE_HOME=str(directory / "state"),
        **SECRETS,
    )
    (directory / "build.log").write_text(done.stderr)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    document = json.loads(done.stdout)
    return Bake(directory, runtime_python, model, root, document["reference"], document)
