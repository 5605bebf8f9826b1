"""The layout as other people's tools see it: skopeo, umoci and podman, each from an empty store (case list of the issue, point 3)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from baker.engines.base import Image
from baker.engines.oci import Oci
from tests.bad import sound
from tests.bad.trees import odd_names

pytestmark = pytest.mark.tools

# podman in a container without CAP_SYS_RESOURCE asks for more open files than it may have, and crun wants cgroups of its own (measured, podman 4.3).
_CONTAINERS = """
[containers]
default_ulimits = ["nofile=8192:8192", "nproc=8192:8192"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
"""


def _need(tool: str) -> str:
    found = shutil.which(tool)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{tool} is not installed: run `make tools`")
        pytest.skip(f"{tool} is not installed")
    return found


def _run(argv: Sequence[object], env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = sound.write(tmp_path_factory.mktemp("tools") / "t")
    odd_names(root)
    return root


@pytest.fixture(scope="module")
def image(tree: Path) -> Image:
    built = sound.build(tree, tree.parent / "o", f"oci:{tree.parent / 'image'}", "v1")
    Oci().attach(built, "application/vnd.example.proof+json", b'{"proof":true}')
    return built


def test_skopeo_inspects_and_copies(image: Image, tmp_path: Path) -> None:
    skopeo = _need("skopeo")
    seen = json.loads(_run([skopeo, "inspect", image.reference]))
    assert seen["Digest"] == image.digest
    assert seen["Layers"] == [layer["digest"] for layer in image.manifest["layers"]]
    assert seen["Labels"]["io.baker.kinds"] == "inductor"
    assert json.loads(_run([skopeo, "inspect", "--config", image.reference]))["config"]["Cmd"] == ["serve", "m"]
    _run([skopeo, "copy", image.reference, f"oci:{tmp_path / 'copy'}:v1"])
    assert Oci().read(f"oci:{tmp_path / 'copy'}:v1").digest == image.digest


def test_umoci_unpacks_the_same_files(image: Image, tree: Path, tmp_path: Path) -> None:
    umoci = _need("umoci")
    bundle = tmp_path / "bundle"
    _run([umoci, "unpack", *([] if os.geteuid() == 0 else ["--rootless"]), "--image", image.reference.removeprefix("oci:"), bundle])
    root = bundle / "rootfs/opt/baker"
    assert sound.hashes(root / "sets/cpu/inductor") == sound.hashes(tree)
    assert {p.stat().st_mode & 0o7777 for p in (root / "sets").rglob("*") if p.is_file()} == {0o444}
    assert (root / "live/inductor").stat().st_mode & 0o7777 == 0o775
    config = json.loads((bundle / "config.json").read_text())
    assert config["process"]["args"][-2:] == ["serve", "m"]


@pytest.fixture
def runroot() -> Iterator[Path]:
    """podman refuses a runroot beyond 50 characters, which pytest's own directories exceed."""
    with tempfile.TemporaryDirectory(prefix="podman-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def test_podman_pulls_into_an_empty_store(image: Image, tree: Path, tmp_path: Path, runroot: Path) -> None:
    podman = _need("podman")
    if os.geteuid() != 0:
        pytest.skip("needs root: an empty podman store")
    conf = tmp_path / "containers.conf"
    conf.write_text(_CONTAINERS)
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker/config.json").write_text("{}")
    env = {"CONTAINERS_CONF": str(conf), "DOCKER_CONFIG": str(tmp_path / "docker")}
    store = [podman, "--root", tmp_path / "store", "--runroot", runroot, "--storage-driver", "vfs"]
    assert _run([*store, "images", "-q"], env) == ""
    name = _run([*store, "pull", "-q", image.reference], env).strip()
    (seen,) = json.loads(_run([*store, "image", "inspect", name], env))
    assert seen["Digest"] == image.digest
    assert seen["RootFS"]["Layers"] == image.config["rootfs"]["diff_ids"]
    assert seen["Config"]["Entrypoint"] == image.config["config"]["Entrypoint"]
    assert len([h for h in seen["History"] if not h.get("empty_layer")]) == 3
    mounted = Path(_run([*store, "image", "mount", name], env).strip())
    try:
        assert sound.hashes(mounted / "opt/baker/sets/cpu/inductor") == sound.hashes(tree)
    finally:
        _run([*store, "image", "umount", "--all"], env)


def test_skopeo_reads_zstd(tree: Path, tmp_path: Path) -> None:
    skopeo = _need("skopeo")
    image = sound.build(tree, tmp_path / "o", f"oci:{tmp_path / 'image'}", "v1", compression="zstd")
    assert json.loads(_run([skopeo, "inspect", image.reference]))["Digest"] == image.digest
    _run([skopeo, "copy", image.reference, f"oci:{tmp_path / 'copy'}:v1"])
    assert Oci().read(f"oci:{tmp_path / 'copy'}:v1").digest == image.digest
