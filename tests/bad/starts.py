"""Run `start` on an image of `images.make`, as the same code in a forked child or as the shipped zip, and read what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from baker.inside import start as entry
from tests.bad import images, users


class Result:
    """A finished start: exit code, what the server said (None when it was not started), stderr, the structured line, the status file."""

    def __init__(self, done: subprocess.CompletedProcess[str], status: Path) -> None:
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr
        self.server = json.loads(done.stdout) if done.stdout.startswith('{"pid"') else None
        self.line: dict[str, Any] = users.structured_line(done.stderr) if '{"baker"' in done.stderr else {}
        self.status: dict[str, Any] = json.loads(status.read_text()) if status.exists() else {}


def environment(image: images.Image, **extra: str) -> dict[str, str]:
    home = image.root.parent / "home"
    home.mkdir(exist_ok=True)
    (image.root.parent / "tmp").mkdir(exist_ok=True)
    base = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(image.root.parent / "tmp"),
        "BAKER_STATUS": str(image.root.parent / "status.json"),
        "BAKER_TERMINATION_LOG": str(image.root.parent / "termination-log"),
    }
    return {name: value for name, value in {**base, **image.environ, **extra}.items() if value != "(unset)"}


def start(image: images.Image, *argv: str, options: tuple[str, ...] = ("--",), shipped: bool = False, **env: str) -> Result:
    """Run start: the same code in a forked child, or with `shipped` the zip under a bare interpreter, as an image does."""
    status = image.root.parent / "status.json"
    status.unlink(missing_ok=True)
    words = [str(image.root / "start"), *options, *(argv or (image.argv if options == ("--",) else ()))]
    environ = environment(image, **env)
    if shipped:
        command = [sys.executable, "-I", "-S", *words]
        done = subprocess.run(
            command, env=environ, cwd=image.root.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30
        )
    else:
        done = users.run_main(entry.main, words, environ, image.root.parent)
    return Result(done, status)
