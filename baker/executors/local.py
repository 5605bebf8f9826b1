"""Executor `local`: the container or machine that baker runs in, which must be the base's own environment.

The root (default /opt/baker) is claimed by an flock on `<root>/.baker.lock` that names the holder; a root with foreign content is refused.
Servers are started by the warm-up driver, which ends them when baker dies, however it dies.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from baker.errors import MachineError
from baker.executors.child import run_driver
from baker.executors.lock import LOCK, PREFIX, Claim, claim
from baker.executors.trees import move, size
from baker.inside import libcuda
from baker.inside.job import Job, JobResult
from baker.pack.space import room
from baker.pack.unpack import OWNED as UNPACKED
from baker.pack.unpack import clear, remove, unpack
from baker.pack.zips import tools_zip

OWNED = frozenset({*UNPACKED, LOCK})
# Inherited by a server on this machine (design 5.6); everything else is dropped, PYTHON* above all.
# CUDA_VISIBLE_DEVICES: the server sees the chosen GPUs as 0..n-1 (case O-07). CPATH, LIBRARY_PATH: where compilers of this machine look.
INHERITED = ("PATH", "LANG", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "TRITON_PTXAS_PATH", "CPATH", "LIBRARY_PATH")
INHERITED_PREFIXES = ("LC_", "NVIDIA_")
PROBE_S = 30.0


class LocalPlace:
    """A claimed root on this machine."""

    def __init__(self, root: str, work: Path, python: str, held: Claim) -> None:
        self.root = root
        self.python = python
        self._held = held
        self._keep = False  # live holds the only copy of what was warmed
        self._work = work
        self._fresh = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._fresh.chmod(0o711)
        held.temporary(self._fresh)
        self._links: list[Path] = []
        self._tools = work / "tools.zip"
        data = tools_zip()
        with room(work, len(data), "the tools"):
            remove(self._tools)  # a pipe there would be waited for, a link be followed
            self._tools.write_bytes(data)

    def run(self, job: Job, *, name: str) -> JobResult:
        """Start the driver on the job and wait; a signal to baker ends the driver, which ends the server."""
        return run_driver(self.python, self._tools, job, self._work / "jobs" / f"{name}.json", self._held.driver)

    def wipe(self) -> None:
        """Empty the root, but for the lock."""
        clear(Path(self.root))

    def live(self, kind: str) -> str:
        """`<root>/live/<kind>`."""
        path = Path(self.root) / "live" / kind
        path.mkdir(parents=True, exist_ok=True)
        return str(path)

    def stash(self, kinds: Sequence[str], to: Path) -> None:
        """A rename where work and root share a file system, else a copy. When it fails, everything stays in live, also after `close`."""
        remove(to)
        self._keep = True
        with room(to, sum(size(Path(self.live(kind))) for kind in kinds), "the warm-up tree"):
            try:
                to.mkdir(parents=True)
                move([(Path(self.live(kind)), to / kind) for kind in kinds])
            except BaseException:
                remove(to)  # an empty stash would be taken for a lost one
                raise
        self._keep = False

    def restore(self, kinds: Sequence[str], come_from: Path) -> None:
        """A rename where both share a file system, else a copy."""
        for kind in kinds:
            remove(Path(self.live(kind)))
        with room(Path(self.root), sum(size(come_from / kind) for kind in kinds), "the warm-up tree"):
            move([(come_from / kind, Path(self.root) / "live" / kind) for kind in kinds])
        remove(come_from)

    def install(self, layers: Sequence[Path]) -> None:
        """Unpack at the root; what an earlier install left goes first."""
        unpack(layers, self.root)

    def link_model(self, path: Path, served: str) -> None:
        """A symbolic link at `served`, taken away again with the place."""
        link = Path(served)
        if not link.is_absolute():
            return
        try:
            if link.exists() and link.samefile(path):
                return
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
        except OSError as error:
            raise MachineError(
                f"cannot link the model to {served}",
                code="served-model-taken",
                found=error.strerror or str(error),
                expected=f"nothing there, or the model {path}",
                remedy="move what is there away, or pass another --served-model",
            ) from None
        self._links.append(link)

    def link_driver(self, library: str) -> None:
        """As start does; without a library nothing is linked."""
        live = f"{self.root}/live"
        if library and (failed := libcuda.make({libcuda.VARIABLE: f"{live}/{libcuda.DIRECTORY}"}, live, library)):
            raise MachineError(failed[0].message, code=failed[0].code, found=library, expected=str(failed[0].expected), remedy=failed[0].remedy)

    def fresh(self, name: str) -> Path:
        """A new directory below this place's own temporary directory, open to any UID."""
        path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._fresh))
        path.chmod(0o777)
        return path

    def close(self) -> None:
        """Remove the temporary directories, the model's link and, unless it is all that there is of a warm-up, what is below the root."""
        for link in self._links:
            link.unlink(missing_ok=True)
        remove(self._fresh)
        if not self._keep:
            self.wipe()


class Local:
    """This machine."""

    name = "local"

    def probe(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Run the probe under the server's interpreter, isolated and without site-packages."""
        python = str(request["python"])
        with tempfile.TemporaryDirectory(prefix="baker-probe-") as directory:
            tools = Path(directory) / "tools.zip"
            tools.write_bytes(tools_zip())
            try:
                done = subprocess.run(
                    [python, "-I", "-S", str(tools), "probe"],
                    input=json.dumps(dict(request)),
                    capture_output=True,
                    text=True,
                    timeout=PROBE_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise MachineError(
                    f"{python} cannot be run", code="no-interpreter", found=str(error), expected="the server's Python", remedy="pass --python"
                ) from None
        if done.returncode != 0:
            raise MachineError(
                f"the probe failed under {python}",
                code="probe-failed",
                found=done.stderr.strip()[-500:],
                expected="facts",
                remedy="pass --python, Python 3.9 or newer",
            )
        return _facts(python, done.stdout)

    def environment(self) -> Mapping[str, str]:
        """The allow-list of design 5.6."""
        return {k: v for k, v in os.environ.items() if k in INHERITED or k.startswith(INHERITED_PREFIXES)}

    def claim(self, root: str, work: Path, python: str) -> AbstractContextManager[LocalPlace]:
        """Lock the root; the lock falls with this process, however it ends."""
        return _claim(root, work, python)


def _facts(python: str, answer: str) -> dict[str, Any]:
    """The probe's answer. Raises MachineError when what ran was no Python."""
    try:
        facts = json.loads(answer)
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise MachineError(
            f"{python} did not answer the probe",
            code="probe-failed",
            found=answer[:200] or "nothing",
            expected="a JSON object",
            remedy="pass --python",
        )
    return facts


@contextmanager
def _claim(root: str, work: Path, python: str) -> Iterator[LocalPlace]:
    _refuse_foreign(Path(root))  # before the claim leaves its mark there
    with claim(Path(root)) as held, claim(work, "work") as _:
        _refuse_noexec(Path(root))
        work.joinpath("jobs").mkdir(parents=True, exist_ok=True)
        place = LocalPlace(root, work, python, held)
        try:
            yield place
        finally:
            place.close()
            held.release()


def _refuse_foreign(directory: Path) -> None:
    """Names alone do not make content ours: `bin` is everybody's. A claim's lock does, or a whole unpacked image."""
    try:
        names = {entry.name for entry in directory.iterdir()}
    except OSError:
        return  # absent: the claim makes it, or says why it cannot
    ours = LOCK in names or {"start", "manifest.json"} <= names
    foreign = sorted(names - OWNED if ours else names)
    if foreign:
        raise MachineError(
            f"the root {directory} holds what baker did not put there",
            code="root-foreign",
            found=", ".join(foreign[:5]),
            expected=f"an empty directory, or {', '.join(sorted(OWNED - {LOCK}))} of an earlier build",
            remedy="pass another --root, or move the content away",
        )


def _refuse_noexec(directory: Path) -> None:
    if os.statvfs(directory).f_flag & os.ST_NOEXEC:
        raise MachineError(
            f"the file system of {directory} is mounted noexec",
            code="root-noexec",
            found="noexec",
            expected="exec: cached shared objects are mapped as code",
            remedy="pass a --root on another file system",
        )
