"""The really baked layout as other people's tools see it, each from an empty store."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from baker.engines.oci import Oci
from tests.e2e.conftest import Bake
from tests.e2e.test_oci_tools import _CONTAINERS, _need, _run

pytestmark = [pytest.mark.e2e, pytest.mark.tools, pytest.mark.timeout(1500)]


def test_skopeo(bake: Bake) -> None:
    seen = json.loads(_run([_need("skopeo"), "inspect", bake.reference]))
    assert seen["Digest"] == bake.document["digest"]
    assert seen["Labels"]["io.baker.plan"] == bake.document["plan"]


def test_umoci(bake: Bake, tmp_path: Path) -> None:
    _run(
        [
            _need("umoci"),
            "unpack",
            *([] if os.geteuid() == 0 else ["--rootless"]),
            "--image",
            bake.reference.removeprefix("oci:"),
            tmp_path / "bundle",
        ]
    )
    unpacked = tmp_path / "bundle" / "rootfs" / str(bake.root).strip("/")
    assert (unpacked / "manifest.json").is_file()
    assert any((unpacked / "sets").rglob("*.so"))


def test_podman(bake: Bake, tmp_path: Path) -> None:
    podman = _need("podman")
    if os.geteuid() != 0:
        pytest.skip("podman's store needs root here")
    (tmp_path / "containers.conf").write_text(_CONTAINERS)
    env = {"CONTAINERS_CONF": str(tmp_path / "containers.conf")}
    store = ["--root", tmp_path / "store", "--runroot", tmp_path / "run", "--storage-driver", "vfs"]
    name = _run([podman, *store, "pull", "--quiet", bake.reference], env).strip().splitlines()[-1]
    (seen,) = json.loads(_run([podman, *store, "image", "inspect", name], env))
    config = Oci().read(bake.reference).config
    assert seen["RootFS"]["Layers"] == config["rootfs"]["diff_ids"]
    assert seen["Config"]["Entrypoint"] == config["config"]["Entrypoint"]
    subprocess.run([podman, *map(str, store), "rmi", name], env={**os.environ, **env}, capture_output=True, check=True)
