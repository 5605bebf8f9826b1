"""Run a function in a child process as another user, or under another root: what a container with an arbitrary user id does. Needs root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def open_directory() -> Iterator[Path]:
    """A temporary directory that every user may enter (pytest's own are closed to others)."""
    path = Path(tempfile.mkdtemp(prefix="baker-test-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        for directory in [path, *(p for p in path.rglob("*") if p.is_dir() and not p.is_symlink())]:
            directory.chmod(0o755)
        shutil.rmtree(path)


def in_child(function: Callable[[], Any], *, uid: int = 0, gid: int = 0, root: str = "") -> Any:
    """The JSON-able result of `function`, run in a forked child as uid:gid without other groups, under `root` when given."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if root:
                os.chroot(root)
                os.chdir("/")
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            try:
                answer = json.dumps({"result": function()})
            except Exception as error:  # noqa: BLE001 - handed to the parent, which raises it
                answer = json.dumps({"error": f"{type(error).__name__}: {error}"})
            os.write(write, answer.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    os.waitpid(pid, 0)
    answer = json.loads(data)
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return answer["result"]


def run_main(
    main: Callable[[list[str]], int], argv: list[str], env: dict[str, str], cwd: Path, *, uid: int | None = None, gid: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run `main(argv)` in a forked child with its own environment and standard files; it may exec. 20 times faster than an interpreter."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if pid == 0:
            try:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", errors="backslashreplace")
                os.chdir(cwd)
                os.environ.clear()
                os.environ.update(env)
                if uid is not None:
                    os.setgroups([])
                    os.setgid(gid)
                    os.setuid(uid)
                code = main(argv)
                sys.stdout.flush()
                os._exit(code)
            finally:
                traceback.print_exc()
                os._exit(99)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
    return subprocess.CompletedProcess(argv, code, *texts)


def structured_line(stderr: str) -> dict[str, Any]:
    """The JSON line that start writes."""
    return dict(json.loads(next(line for line in reversed(stderr.splitlines()) if line.startswith('{"baker"'))))
