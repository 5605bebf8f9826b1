"""The GPU path of a build, on the server simulator and the quick stand-in for the driver: refusals, marks, proof, and start on other machines."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from baker.engines.oci import Oci
from baker.executors.local import Local
from baker.pack.unpack import unpack
from baker.steps.images import Opened, open_image
from tests.pipeline.bakes import LOADS, Done, Site, finish, spawn
from tests.sim.install import make_runtime
from tests.vgpu.quick import bed

H100 = "NVIDIA H100 80GB HBM3"
SWITCH = {"BAKER_VIRTUAL_GPU": "1"}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bed.build(tmp_path_factory.mktemp("quick") / "lib")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    runtime = make_runtime(tmp_path_factory.mktemp("gpu") / "rt", "0.33.0", "vllm", "2.14.0+cu130")
    return Site(tmp_path_factory.mktemp("gpu") / "site", runtime, LOADS)


def build(site: Site, libraries: Path, *options: str, name: str = "x", **env: str) -> Done:
    """`baker build --arch sm_90` on the stand-in."""
    places = ("--work", str(site.directory / f"work-{name}"), "--output", f"oci:{site.directory / f'image-{name}'}")
    return site.child("--json", "--arch", "sm_90", *places, *options, env={"LD_LIBRARY_PATH": str(libraries), **env})


@pytest.fixture(scope="module")
def baked(site: Site, libraries: Path) -> Done:
    done = build(site, libraries, "--gpu", H100, name="suite", **SWITCH)
    assert done.code == 0, done.text
    return done


@pytest.mark.parametrize(
    ("options", "env", "code", "names"),
    [
        ((), {}, "virtual-gpu", "--virtual"),
        ((), {"BAKER_VIRTUAL_GPU": "0"}, "virtual-gpu", "--virtual"),
        (("--gpu", "NVIDIA H200"), SWITCH, "wrong-gpu", "H200"),
        (("--arch", "sm_100"), SWITCH, "wrong-gpu", "sm_90"),
        ((), {**SWITCH, "QUICK_CUDA": "12040", "QUICK_DRIVER": "550.54.15"}, "driver-too-old", "550.54.15"),  # case O-19
        ((), {**SWITCH, "QUICK_INIT": "803"}, "no-gpu", "compat"),  # case O-21
        ((), {**SWITCH, "QUICK_INIT": "100"}, "no-gpu", "docker build"),  # case O-27
    ],
)
def test_a_machine_that_will_not_do_is_told_at_once(
    options: tuple[str, ...], env: dict[str, str], code: str, names: str, site: Site, libraries: Path
) -> None:
    done = build(site, libraries, *options, name="refused", **env)
    assert (done.code, done.error["code"]) == (3, code), done.text
    assert names in json.dumps(done.error)
    assert not (site.directory / "image-refused").exists()


def test_a_bake_on_the_bed_is_virtual_and_never_proven(baked: Done) -> None:
    document = baked.document
    assert (document["strategy"], document["verdict"], document["set"]) == ("aot", "virtual", "sm_90-nvidia-h100-80gb-hbm3")
    assert [start["name"] for start in document["proof"]["starts"]] == ["bare-1", "bare-2", "bare-3", "recorded", "fail-hard"]
    assert "virtual-gpu" in {finding["code"] for finding in document["proof"]["findings"]}
    opened = open_image(Oci(), Oci().read(document["reference"]))
    labels = opened.image.config["config"]["Labels"]
    assert (labels["io.baker.virtual"], labels["io.baker.arch"], labels["io.baker.product"]) == ("true", "sm_90", H100)
    assert opened.manifest.sets[0].raw["virtual"]["mode"] == "suite"
    assert opened.manifest.sets[0].strategy["fail_hard"]["FLASHINFER_DISABLE_JIT"] == "1"  # no FlashInfer module was built


def test_virtual_by_option_is_another_plan_and_marked(baked: Done, site: Site, libraries: Path) -> None:
    done = build(site, libraries, "--gpu", H100, "--virtual", "--no-prove", name="cross")
    assert done.code == 0, done.text
    assert done.document["plan"] != baked.document["plan"]
    mark = open_image(Oci(), Oci().read(done.document["reference"])).manifest.sets[0].raw["virtual"]
    assert mark["mode"] == "cross"
    assert "vllm/*.best_config" in mark["left_out"]


def test_the_driver_link_is_made_and_never_shipped(baked: Done) -> None:
    opened = open_image(Oci(), Oci().read(baked.document["reference"]))
    env = opened.env
    assert env["TRITON_LIBCUDA_PATH"] == f"{opened.manifest.root}/live/.libcuda"
    assert not any("libcuda" in file.path for s in opened.manifest.sets for kind in s.kinds for file in kind.files)


def start(opened: Opened, site: Site, libraries: Path, home: Path, *command: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
    """`start` of the unpacked image on the stand-in, as `env` makes it."""
    shutil.rmtree(site.root, ignore_errors=True)
    unpack(opened.layer_paths, str(site.root))
    words = [site.python, "-I", "-S", f"{site.root}/start", *(["--check"] if check else []), "--", *command]
    complete = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(libraries), **opened.env, "HOME": str(home), "TMPDIR": str(home), **env}
    return subprocess.run(words, env=complete, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("env", "state", "codes"),
    [
        ({}, "shown", set()),
        ({"QUICK_DRIVER": "580.126.09"}, "shown", {"fact-differs"}),  # case O-20: soft
        ({"QUICK_NAME": "NVIDIA H200"}, "hidden", {"fact-differs"}),
        ({"QUICK_CAPABILITY": "120", "QUICK_NAME": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}, "none", {"no-set-fits"}),  # case O-13
        ({"QUICK_CUDA": "12040"}, "hidden", {"fact-differs"}),  # case O-19
        ({"VLLM_LOOPBACK_IP": "10.0.0.7"}, "hidden", {"variable-differs"}),  # case O-02
        ({"HOME": "/nowhere", "XDG_CACHE_HOME": "/nowhere/c"}, "shown", set()),  # case O-01
    ],
)
def test_start_on_another_machine(env: dict[str, str], state: str, codes: set[str], baked: Done, site: Site, libraries: Path, tmp_path: Path) -> None:
    opened = open_image(Oci(), Oci().read(baked.document["reference"]))
    serve = opened.manifest.sets[0].serve
    done = start(opened, site, libraries, tmp_path, *serve["program"], *serve["argv"], **env)
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["kinds"].get("vllm", {"state": "none"})["state"] == state, document["details"]
    found = {finding["code"] for finding in document["details"]} - {"virtual-bake"}
    assert codes <= found
    assert "virtual-bake" in {finding["code"] for finding in document["details"]} or state == "none"


def test_tensor_parallel_at_start_only_is_named(baked: Done, site: Site, libraries: Path, tmp_path: Path) -> None:  # case O-07
    opened = open_image(Oci(), Oci().read(baked.document["reference"]))
    serve = opened.manifest.sets[0].serve
    done = start(opened, site, libraries, tmp_path, *serve["program"], *serve["argv"], "--tensor-parallel-size", "2")
    document = json.loads(done.stdout)
    assert document["kinds"]["vllm"]["state"] == "hidden"
    assert any("--tensor-parallel-size" in finding["message"] for finding in document["details"])


def test_start_links_this_machines_driver_for_triton(baked: Done, site: Site, libraries: Path, tmp_path: Path) -> None:
    opened = open_image(Oci(), Oci().read(baked.document["reference"]))
    program = opened.manifest.sets[0].serve["program"][0]
    done = start(opened, site, libraries, tmp_path, program, "--version", check=False)
    link = site.root / "live" / ".libcuda" / "libcuda.so.1"
    assert link.is_symlink(), done.stderr
    assert link.readlink() == libraries / "libcuda.so.1"


def test_chosen_gpus_reach_the_server_as_the_first_ones_and_stay_out_of_the_image(
    site: Site, libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # case O-07: CUDA renumbers what CUDA_VISIBLE_DEVICES names; the image must not pin the builder's choice
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert Local().environment()["CUDA_VISIBLE_DEVICES"] == "3"
    done = build(site, libraries, "--gpu", H100, "--no-prove", name="third", CUDA_VISIBLE_DEVICES="3", **SWITCH)
    assert done.code == 0, done.text
    opened = open_image(Oci(), Oci().read(done.document["reference"]))
    assert "CUDA_VISIBLE_DEVICES" not in opened.env
    assert "CUDA_VISIBLE_DEVICES" not in opened.manifest.sets[0].serve["env"]


def test_an_assembler_that_does_not_know_the_architecture(libraries: Path, tmp_path_factory: pytest.TempPathFactory, site: Site) -> None:  # case O-22
    line = "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"
    place = Site(tmp_path_factory.mktemp("ptxas") / "site", site.python, {**LOADS, "die": {"when": "start", "at": 1, "first": line, "last": line}})
    done = build(place, libraries, "--gpu", H100, name="x", **SWITCH)
    assert done.code == 4, done.text
    assert "sm_121a" in done.error["found"]
    assert "TRITON_PTXAS_PATH" in done.error["remedy"]


def test_prove_on_a_stand_in_never_says_proven(baked: Done, site: Site, libraries: Path) -> None:
    env = {"LD_LIBRARY_PATH": str(libraries)}
    again = finish(spawn("prove", "--json", baked.document["reference"], env=env))
    assert again.code == 0, again.text
    assert again.document["verdict"] == "virtual"
    elsewhere = finish(spawn("prove", "--json", baked.document["reference"], env={**env, "QUICK_CAPABILITY": "80"}))
    assert (elsewhere.code, elsewhere.error["code"]) == (3, "wrong-gpu")
