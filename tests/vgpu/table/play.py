"""Play one start of an unpacked image: through `start`, or by force (live filled unchecked, no start). The force is a test's, never the product's."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baker.inside.check import entry_of
from baker.inside.manifest import CacheSet, FileEntry, Kind, Manifest
from baker.pack.tree import inventory
from baker.pack.unpack import remove
from baker.runtimes import vllm_data
from baker.steps.changes import expected_live
from tests.vgpu.table.judge import COLD, USE, Played
from tests.vgpu.table.rows import Row

LIMIT_S = 420.0  # a cold start with a FlashInfer module to build takes three minutes on two cores
GRACE_S = 20.0


@dataclass(frozen=True)
class Image:
    """An image to play: its layers, manifest and ENV, and the set whose arguments are varied."""

    layers: Sequence[Path]
    manifest: Manifest
    env: Mapping[str, str]
    cache_set: CacheSet


@dataclass(frozen=True)
class Ground:
    """Where it is played: the machine maker, a scratch directory, variables of this host (CUDA_HOME, CPATH), and what stands in for names in rows."""

    machine: Callable[[Mapping[str, Any]], Path | None]
    scratch: Path
    host: Mapping[str, str]
    cuda_link: str = ""


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def _first(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[0]


DAMAGE: Mapping[str, Callable[[Path], None]] = {
    "aot-flip": lambda pristine: _flip(_first(pristine, "vllm/torch_compile_cache/torch_aot_compile/*/rank_*/model")),
    "aot-missing": lambda pristine: _first(pristine, "vllm/torch_compile_cache/torch_aot_compile/*/rank_0_*/model").unlink(),
    "cubin-flip": lambda pristine: _flip(_first(pristine, "triton/*/*.cubin")),
}


def command(image: Image, row: Row, ground: Ground, port: int) -> list[str]:
    """The server's command as production would start it, with the row's arguments; weights are random ones."""
    argv = list(image.cache_set.serve["argv"])
    if row.model == "link":
        link = ground.scratch / "another-path"
        if not link.is_symlink():
            link.symlink_to(argv[0])
        argv[0] = str(link)
    for flag, value in row.serve.items():
        if flag in argv:
            at = argv.index(flag)
            del argv[at : at + 2]
        argv += [flag, value] if value is not None else []
    return [*image.cache_set.serve["program"], *argv, "--load-format", "dummy", "--host", "127.0.0.1", "--port", str(port)]


def environment(image: Image, row: Row, ground: Ground, fresh: Path, root: str) -> dict[str, str]:
    """The image's ENV on this host, with the row's variables; HOME and TMPDIR are new."""
    env = {**ground.host, **image.env, "HOME": str(fresh / "home"), "TMPDIR": str(fresh / "tmp"), "BAKER_STATUS": str(fresh / "status.json")}
    env["PATH"] = f"{root}/bin:{ground.host['PATH']}"
    machine = ground.machine(row.machine)
    if machine is not None:
        env["LD_LIBRARY_PATH"] = env["LIBRARY_PATH"] = str(machine)  # the latter for what links against the driver: FlashInfer's modules
    for name, value in row.env.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value.format(fresh=fresh / "elsewhere", cuda_link=ground.cuda_link)
    return env


def prepare(image: Image, row: Row, forced: bool, place: Path, live: Path) -> dict[str, Any]:
    """Copy the unpacked image to `place`, damage it, fill live when forced. Returns live's inventory by kind."""
    shutil.copytree(image.manifest.root, place, symlinks=True)
    pristine = place / "sets" / image.cache_set.name
    if row.damage:
        for directory in [pristine, *(path for path in pristine.rglob("*") if path.is_dir())]:
            directory.chmod(0o755)
        DAMAGE[row.damage](pristine)
    if forced:
        for kind in image.cache_set.kinds:
            shutil.copytree(pristine / kind.name, live / kind.name, dirs_exist_ok=True)
        for path in live.rglob("*"):
            path.chmod(0o775 if path.is_dir() else 0o664)
    return look(image, live)


def look(image: Image, live: Path) -> dict[str, Any]:
    """live by kind."""
    return {kind.name: inventory(live / kind.name) for kind in image.cache_set.kinds if (live / kind.name).is_dir()}


def _post(port: int, body: Mapping[str, Any], timeout: float) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def _serve(process: subprocess.Popen[bytes], port: int, names: Sequence[str], limit: float) -> str:
    """Wait until two completions of different lengths were answered. "ready", "died" or "not-ready"."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if process.poll() is not None:
            return "died"
        try:
            for name in names:
                first = {"model": name, "prompt": [5, 6, 7], "max_tokens": 2, "temperature": 0}
                if _post(port, first, 120) == 200:
                    return "ready" if _post(port, {**first, "prompt": list(range(3, 100)), "max_tokens": 8}, 120) == 200 else "died"
        except (OSError, http.client.HTTPException):
            time.sleep(0.3)
    return "not-ready"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process group that this start made."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                continue
    try:
        os.killpg(process.pid, signal.SIGKILL)  # an engine that outlived its server
    except ProcessLookupError:
        return


# In a mount namespace of its own: the unpacked image at its root, and what a row wants of it.
NAMESPACE = """set -e
mount --bind "$1" "$2"
if [ "$3" != "$1/live" ]; then mount -o remount,ro,bind "$2"; mount --bind "$3" "$2/live"; fi
uid=$4; shift 4
if [ "$uid" != 0 ]; then exec setpriv --reuid "$uid" --regid 0 --clear-groups "$@"; fi
exec "$@"
"""


def namespaces() -> bool:
    """Whether mount namespaces can be made here; without them rows with another user or a read-only root cannot be played."""
    return subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def _wrapped(row: Row, words: list[str], place: Path, live: Path, root: str) -> list[str]:
    Path(root).mkdir(parents=True, exist_ok=True)
    return ["unshare", "-m", "sh", "-c", NAMESPACE, "sh", str(place), root, str(live), str(row.uid), *words]


def play(image: Image, row: Row, ground: Ground, *, forced: bool, limit: float = LIMIT_S) -> Played:
    """One start. Raises OSError when the place itself fails."""
    root = image.manifest.root
    fresh = Path(tempfile.mkdtemp(prefix="table-", dir=ground.scratch))
    for path in (fresh, fresh / "home", fresh / "tmp"):
        path.mkdir(exist_ok=True)
        path.chmod(0o777)
    place = fresh / "root"
    live = fresh / "live" if row.read_only else place / "live"
    if row.read_only:
        live.mkdir()
        live.chmod(0o775)
    before = prepare(image, row, forced, place, live)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = command(image, row, ground, port)
    words = server if forced else [server[0].rpartition("/")[0] + "/python", "-I", "-S", f"{root}/start", "--", *server]
    env = environment(image, row, ground, fresh, root)
    log = fresh / "log"
    began = time.monotonic()
    with log.open("wb") as sink:
        wrapped = _wrapped(row, words, place, live, root)
        process = subprocess.Popen(wrapped, env=env, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True)
        try:
            names = [row.serve.get("--served-model-name") or server[len(image.cache_set.serve["program"])]]
            status = _serve(process, port, names, limit)
        finally:
            _end(process)
    text = log.read_text(errors="replace")
    said, codes, word, seen = _said(image, fresh / "status.json", forced)
    after = look(image, live)
    remove(place)
    seconds = round(time.monotonic() - began, 1)
    found = before if forced else seen(before, after)
    return Played(status, seconds, found, after, lines(image, text), error(text), said, codes, word)


def _said(image: Image, path: Path, forced: bool) -> tuple[dict[str, str], dict[str, list[str]], str, Callable[[Any, Any], Any]]:
    """What start said of each kind, and how live looked when it handed over: links into pristine and copies, as the manifest lists them."""
    if forced or not path.is_file():
        return {}, {}, "", lambda before, after: before
    document = json.loads(path.read_text())
    kinds = document["kinds"]
    shown = {kind.name for kind in image.cache_set.kinds if kinds.get(kind.name, {}).get("state") == "shown"}
    picked = next((s for s in image.manifest.sets if s.name == document["set"]), image.cache_set)  # of several sets start picks the machine's own
    pristine = f"{image.manifest.root}/sets/{picked.name}"

    def whole(kind: Kind) -> list[FileEntry]:
        lost = set(kinds[kind.name].get("quarantined", ()))
        return [file for file in kind.files if not lost or entry_of(file.path, kind.entry_depth) not in lost]

    def filled(before: Any, after: Any) -> dict[str, Any]:
        return {
            kind.name: expected_live(whole(kind), f"{pristine}/{kind.name}", after.get(kind.name, {})) if kind.name in shown else {}
            for kind in picked.kinds
        }

    said = {name: USE if entry["state"] == "shown" else COLD for name, entry in kinds.items()}
    codes = {kind.name: _codes(document["details"], kind.name) for kind in image.cache_set.kinds}
    return said, codes, str(document["baker"]), filled


def _codes(details: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """Codes of the findings about a kind or about the whole image, but for those that every bake on the bed has."""
    return sorted({str(f["code"]) for f in details if f.get("kind") in (kind, "") and f["code"] not in ("virtual-bake", "unproven")})


def lines(image: Image, text: str) -> dict[str, list[str]]:
    """Log lines by the rules of this version of vLLM."""
    found: dict[str, list[str]] = {}
    rules = [(rule.name, re.compile(rule.pattern)) for rule in vllm_data.watch(str(image.manifest.plan.get("version", "")))]
    for line in text.splitlines():
        for name, pattern in rules:
            if pattern.search(line):
                found.setdefault(name, []).append(line[:600])
    return found


def error(text: str) -> str:
    """The last line that looks like an exception."""
    hits = [line for line in text.splitlines() if re.search(r"\b\w*(?:Error|Exception)\b: ", line)]
    return hits[-1][-400:] if hits else ""
