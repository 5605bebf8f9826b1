"""Variants of the cases from real reports, each of which once went wrong: the rule behind the case, not its example."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from baker import plancheck
from baker.caches import by_name
from baker.errors import ArtifactError, UsageError
from baker.executors.trees import size
from baker.inside.job import JobResult
from baker.pack import leaks
from baker.pack.image import ancestors
from baker.pack.tree import survey
from baker.profiles import validate
from baker.runtimes.vllm import Vllm
from baker.runtimes.vllm_data import TRANSPORT
from baker.spec import Target, split_transport
from baker.steps.rounds import require_ok
from tests.bad import images
from tests.bad.starts import start
from tests.pipeline.bakes import LOADS, QUICK, SERVE, Site
from tests.sim.install import make_runtime

AOT = "torch_compile_cache/torch_aot_compile/" + "a" * 64
LAST_KEY = "TESTkeyNumberTwo2"


@pytest.mark.parametrize("strategy", ["aot", "compile-cache"])
def test_batched_tokens_count_where_they_are_in_the_key(strategy: str) -> None:
    """O-04: neutral for Inductor's own cache only."""
    assert "--max-num-batched-tokens" in Vllm().neutral("0.32.0", Target("cpu"), "inductor")["arguments"]
    assert "--max-num-batched-tokens" not in Vllm().neutral("0.32.0", Target("cpu"), strategy)["arguments"]


@pytest.mark.parametrize(
    "words",
    [("--api-key", "k1", LAST_KEY), (f"--api_key={LAST_KEY}",), ("--api_key", LAST_KEY), ("--hf_token", LAST_KEY), ("--ssl_keyfile", LAST_KEY)],
)
def test_a_key_leaves_the_plan_however_it_is_spelt(words: tuple[str, ...]) -> None:
    """O-49."""
    assert split_transport((*words, "--max-model-len", "64"), TRANSPORT) == (("--max-model-len", "64"), words)
    assert split_transport(("--hf-token", "--seed", "1"), TRANSPORT) == (("--seed", "1"), ("--hf-token",))


def test_a_key_among_a_profile_s_arguments_is_refused(tmp_path: Path) -> None:
    """O-49: the profile stands in the image."""
    path = tmp_path / "p.yaml"
    path.write_text(QUICK.replace("serve: []", f"serve: [--api-key, {LAST_KEY}]"))
    problems = validate(path)
    assert isinstance(problems, list)
    assert [(p.where, p.found) for p in problems] == [("serve[0]", "--api-key")]


def test_a_password_in_an_address_is_a_secret() -> None:
    """O-49."""
    with pytest.raises(ArtifactError, match="a password in an address"):
        leaks.check_documents([("the plan", b'["--otlp-traces-endpoint","http://user:pass-0123@host:1/"]')], {})
    leaks.check_documents([("the plan", b'["http://host:4317/a@b","oci:dir:tag","user@host"]')], {})


@pytest.mark.parametrize(
    ("serve", "seen", "bad"), [(("-tp", "2"), (0,), True), (("--tensor_parallel_size=2", "-pp=2"), (0, 1), True), ((), (0,), False)]
)
def test_every_rank_of_the_world_is_wanted(serve: tuple[str, ...], seen: tuple[int, ...], bad: bool) -> None:
    """O-07: `rank_0_0` alone is not enough for two ranks."""
    findings = Vllm().problems(serve, "vllm", [f"{AOT}/rank_{rank}_0/model" for rank in seen])
    assert [f.code for f in findings] == ["rank-missing"] * bad
    assert all(f.severity == "hard" and str(f.expected).startswith("ranks 0, 1") for f in findings)


@pytest.mark.parametrize("root", ["/opt/.wh.baker", "/opt/.wh.x/baker", "/.wh..wh..opq"])
def test_a_root_that_means_deletion_is_refused(root: str) -> None:
    """O-33."""
    with pytest.raises(UsageError, match="not usable as root"):
        ancestors(root)


def test_a_link_to_a_pipe_or_socket_is_left_out(tmp_path: Path) -> None:
    """O-28: never opened, one remark, the build goes on."""
    (tmp_path / "good.so").write_bytes(b"\x7fELF")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    found = survey(tmp_path, by_name("inductor"))
    assert [f.path for f in found.files] == ["good.so"]
    assert sorted((d.path, d.reason) for d in found.dropped) == [("link", "link to a FIFO"), ("pipe", "FIFO")]


@pytest.mark.parametrize(
    "name",
    ["x.tmp.1234", "x.so.tmp-ab12", ".tmp-ab/y", "x.lock.72", "x.part", "x.partial", "x.incomplete", ".x.swp", "x~", ".fuse_hidden01", "core.77"],
)
def test_debris_of_other_writers_is_left_out(tmp_path: Path, name: str) -> None:
    """O-14."""
    (tmp_path / "good.so").write_bytes(b"\x7fELF")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("half")
    assert [f.path for f in survey(tmp_path, by_name("inductor")).files] == ["good.so"]


@pytest.mark.parametrize("name", [".env", "kaggle.json", "gcloud/credentials.db", ".git/config", "gh/hosts.yml"])
def test_files_that_hold_credentials_are_refused(tmp_path: Path, name: str) -> None:
    """O-50."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x")
    with pytest.raises(ArtifactError, match="must not ship") as caught:
        survey(tmp_path, by_name("inductor"))
    assert caught.value.code == "secret-found"


def test_a_tree_beyond_the_longest_path_can_be_measured(tmp_path: Path) -> None:
    """O-29: 25 directories of 200 bytes are more than a path may have."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("end", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
    (tmp_path / "seen").write_text("12345")
    assert size(tmp_path) == 5


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        ("RuntimeError: boom, no room", False),
        ("torch.OutOfMemoryError: CUDA out of memory.", True),
        ("DefaultCPUAllocator: can't allocate memory", True),
    ],
)
def test_out_of_memory_is_told_from_other_words(error: str, memory: bool) -> None:
    """O-37."""
    with pytest.raises(Exception, match="the server died") as caught:
        require_ok(JobResult(status="died", stage="start", error=error, exit_code=1), name="round 1", log="x.log")
    assert ("--max-model-len" in str(getattr(caught.value, "remedy", ""))) == memory


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_a_noexec_mount_is_named(tmp_path: Path) -> None:
    """O-18: hard where baked shared objects lie, soft where new ones would be written."""
    image = images.make(tmp_path / "root", content=lambda _: {"ab/c.so": b"\x7fELF"})
    mounts = {"live": tmp_path / "root" / "live", "tmp": tmp_path / "tmp"}
    mounts["tmp"].mkdir()
    mounted = []
    try:
        for name, place in mounts.items():
            if subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", place], check=False, capture_output=True).returncode:
                pytest.skip("no permission to mount")
            mounted.append(name)
        done = start(image, TMPDIR=str(mounts["tmp"]))
        lines = [line for line in done.stderr.splitlines() if "mount-noexec" in line]
        assert len(lines) == 2, done.stderr
        assert all("soft" in line for line in lines)
        assert all(any(str(place) in line for line in lines) for place in mounts.values())
    finally:
        for name in mounted:
            subprocess.run(["umount", mounts[name]], check=True)


@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_the_status_file_takes_no_device_s_place(tmp_path: Path, kind: str) -> None:
    """BAKER_STATUS=/dev/null as root would else replace the device by a file."""
    image = images.make(tmp_path / "root")
    place = tmp_path / "place"
    os.mkfifo(place) if kind == "pipe" else place.mkdir()
    done = start(image, BAKER_STATUS=str(place), TMPDIR=str(tmp_path))
    assert done.server is not None, done.stderr
    assert not place.is_file()
    assert (tmp_path / "baker-status.json").is_file()


@pytest.mark.parametrize("name", ["TRITON_CACHE_DIR", "TRITON_HOME", "CUDA_CACHE_PATH", "VLLM_CACHE_ROOT", "TORCH_EXTENSIONS_DIR"])
def test_a_profile_moves_no_cache_out_of_sight(name: str) -> None:
    """O-05: what the warm-up left there would make the proof pass and production compile."""
    with pytest.raises(UsageError) as caught:
        plancheck.variables({name: "/opt/elsewhere", "VLLM_CPU_KVCACHE_SPACE": "4"})
    assert (caught.value.code, caught.value.found) == ("owned-variable", name)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("runtime")
    directory.chmod(0o755)
    return make_runtime(directory / "rt")


def _bake(tmp_path: Path, python: str, *serve: str, script: dict[str, Any] | None = None, env: dict[str, str] | None = None) -> tuple[Site, Any]:
    place = Site(tmp_path / "site", python, script or dict(LOADS))
    return place, place.child("--json", "--no-prove", serve=(*SERVE, *serve), env=env)


def test_one_rank_of_two_fails_the_bake(tmp_path: Path, python: str) -> None:
    """O-07."""
    _, done = _bake(tmp_path, python, "--tensor-parallel-size", "2")
    assert (done.code, done.error["code"]) == (5, "rank-missing"), done.text
    assert "expected ranks 0, 1" in done.error["message"]


def test_what_never_settles_is_named_in_the_message(tmp_path: Path, python: str) -> None:
    """O-06."""
    _, done = _bake(tmp_path, python, script={**LOADS, "new_file": True})
    assert (done.code, done.error["code"]) == (5, "no-strategy"), done.text
    assert ".py" in done.error["found"]
    assert "live/inductor" in done.error["found"]


def test_an_inherited_key_variable_goes_into_the_image(tmp_path: Path, python: str) -> None:
    """O-10: CUDA_HOME is hashed by vLLM, so the image must set what the bake saw."""
    place, done = _bake(tmp_path, python, env={"CUDA_HOME": "/usr/local/cuda-x", "TORCH_CUDA_ARCH_LIST": "9.0"})
    assert done.code == 0, done.text
    blobs = [path.read_bytes() for path in (place.image / "blobs" / "sha256").iterdir()]
    configs = [json.loads(data) for data in blobs if data[:1] == b"{" and b'"Entrypoint"' in data]
    assert all("CUDA_HOME=/usr/local/cuda-x" in config["config"]["Env"] for config in configs)
    assert configs
    assert not any(b"TORCH_CUDA_ARCH_LIST" in data for data in blobs)
