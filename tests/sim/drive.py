"""Run the driver as the product does: tools.zip under `python -I -S`, one job file in, one result file out."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from baker.inside.job import Job, JobResult, Request, Stage, dump, load_result
from baker.pack.zips import tools_zip


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def completion(model: str, number: int, length: int, output: int, **more: Any) -> Request:
    """A streamed completion over token ids that differ from the first one on."""
    prompt = [(number * 97 + i * 13) % 900 + 16 for i in range(length)]
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": output,
        "min_tokens": output,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        **more,
    }
    return Request("/v1/completions", body, length, output)


class Bench:
    """One working directory: runtime, model, cache roots, and jobs against them."""

    def __init__(self, directory: Path, python: str, model: Path) -> None:
        self.directory, self.python, self.model = directory, python, model
        directory.mkdir(parents=True, exist_ok=True)
        self.tools = directory / "tools.zip"
        self.tools.write_bytes(tools_zip())
        self.live = directory / "live"

    def env(self, number: int, **more: str) -> dict[str, str]:
        """The server's environment: pinned caches, AOT off, fresh HOME and TMPDIR for each start."""
        fresh = {name: self.directory / f"{name.lower()}{number}" for name in ("HOME", "TMPDIR")}
        for path in [*fresh.values(), self.live / "inductor", self.live / "vllm", self.live / "triton"]:
            path.mkdir(parents=True, exist_ok=True)
        return {
            "PATH": "/usr/bin:/bin",
            **{name: str(path) for name, path in fresh.items()},
            "VLLM_CACHE_ROOT": str(self.live / "vllm"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.live / "inductor"),
            "TRITON_CACHE_DIR": str(self.live / "triton"),
            "VLLM_USE_AOT_COMPILE": "0",
            "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
            **more,
        }

    def job(self, number: int, stages: list[Stage] | None = None, arguments: tuple[str, ...] = (), **changes: Any) -> Job:
        """Job number `number`: recorded, one stage of one request unless `stages` says otherwise."""
        port, model = free_port(), str(self.model)
        base = Job(
            argv=[self.python, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--host", "127.0.0.1", "--port", str(port), *arguments],
            env=self.env(number),
            port=port,
            ready=completion(model, 0, 4, 1),
            stages=stages if stages is not None else [Stage("one", [[completion(model, 1, 32, 8)]], keep_tokens=True)],
            log=str(self.directory / f"{number}.log"),
            out=str(self.directory / f"{number}.result.json"),
            roots={name: str(self.live / name) for name in ("inductor", "vllm", "triton")},
            record=str(self.directory / f"record{number}"),
            ready_s=20,
            request_s=10,
            deadline_s=60,
            grace_s=2,
        )
        return dataclasses.replace(base, **changes)

    def command(self, job: Job) -> list[str]:
        """Write the job file; the driver's command line."""
        path = Path(job.out).with_suffix(".job")
        path.write_text(dump(job))
        return [sys.executable, "-I", "-S", str(self.tools), "drive", str(path)]

    def start(self, job: Job, **popen: Any) -> subprocess.Popen[bytes]:
        """Start the driver and do not wait."""
        environment = popen.pop("env", {"PATH": os.environ["PATH"]})
        return subprocess.Popen(self.command(job), env=environment, **popen)

    def run(self, job: Job, expect: int = 0, **popen: Any) -> JobResult:
        """Run the driver to its end and read the result."""
        with self.start(job, stderr=subprocess.PIPE, **popen) as process:
            errors = process.communicate(timeout=60)[1].decode()
        assert process.returncode == expect, (process.returncode, errors)
        return load_result(Path(job.out).read_text())


def leftovers(*needles: object) -> list[str]:
    """Command lines of living processes that contain one of the texts, or hold one in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            text = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
        except (OSError, IndexError):
            continue
        if state not in "ZX" and any(str(needle).encode() in text for needle in needles):
            found.append(f"{entry.name} {text[:200]!r}")
    return found


def requests_of(path: Path) -> list[dict[str, Any]]:
    """What the simulator recorded of its completions."""
    return [json.loads(line) for line in path.read_text().splitlines()]
