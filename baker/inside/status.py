"""What start says: one line a finding and one JSON line on stderr, the status file, and the termination log of Kubernetes."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

import baker
from baker.inside.arguments import masked
from baker.inside.check import Verdict
from baker.inside.inventory import shown
from baker.inside.live import UnusableError, temporary_directory, write_atomically
from baker.inside.manifest import CacheSet

STATUS = "/run/baker/status.json"
TERMINATION_LOG = "/dev/termination-log"
TERMINATION_BYTES = 4096  # what Kubernetes keeps of a container's termination message


class Outcome(NamedTuple):
    """Everything that one start found out. `digest` is the manifest's own ("" when it cannot be read); `seconds` from start's begin."""

    verdict: Verdict
    digest: str
    cache_set: Optional[CacheSet]
    facts: Mapping[str, Any]
    policy: str
    level: str
    live: str
    seconds: float


def say(text: str) -> None:
    """One line for people on stderr, whatever characters it holds."""
    write_line("baker: " + text)


def write_line(text: str) -> None:
    """A line on stderr. A log that nobody reads any more (closed, broken pipe, full disk) does not keep the server from starting."""
    if sys.stderr is not None:
        try:
            print(text, file=sys.stderr, flush=True)
        except OSError:
            sys.stderr = None


def _remark(verdict: Verdict, name: str) -> str:
    lost = len(verdict.quarantined.get(name, ()))
    return " (looked for elsewhere)" if name in verdict.elsewhere else " (without %d damaged entries)" % lost if lost else ""


def summary(outcome: Outcome) -> str:
    """The line for people: compatible, partly or cold, with each kind."""
    verdict = outcome.verdict
    hidden = "; ".join("%s (%s)" % (shown(name), ", ".join(codes)) for name, codes in verdict.hidden.items())
    visible = ", ".join(shown(name) + _remark(verdict, name) for name in verdict.shown)
    if verdict.word == "compatible":
        return "compatible: %s" % visible
    if verdict.word == "partly":
        return "PARTLY compatible: shown %s%s" % (visible, "; hidden " + hidden if hidden else "")
    reasons = sorted({f.code for f in verdict.hard if not f.kind})
    return "COLD, the server will compile: %s" % (hidden or ", ".join(reasons) or (visible and "every kind is looked for elsewhere") or "no caches")


def line(outcome: Outcome, status_path: str) -> str:
    """The structured line: one JSON object, ASCII, its first key "baker"."""
    verdict = outcome.verdict
    document = {
        "baker": verdict.word,
        "policy": outcome.policy,
        "verify": outcome.level,
        "set": verdict.set_name,
        "shown": verdict.shown,
        "hidden": verdict.hidden,
        "elsewhere": verdict.elsewhere,
        "findings": {"hard": len(verdict.hard), "soft": len(verdict.findings) - len(verdict.hard)},
        "manifest": outcome.digest,
        "live": outcome.live,
        "seconds": round(outcome.seconds, 4),
        "status": status_path,
    }
    return json.dumps(document)


def _kinds(outcome: Outcome) -> Dict[str, Any]:
    verdict = outcome.verdict
    states: Dict[str, Any] = {}
    for kind in outcome.cache_set.kinds if outcome.cache_set else ():
        codes = verdict.hidden.get(kind.name, [])
        state = "hidden" if codes else "elsewhere" if kind.name in verdict.elsewhere else "shown"
        damage = [{"code": d.code, "path": d.path, "found": d.found, "expected": d.expected} for d in verdict.damage.get(kind.name, ())]
        size = sum(file.size for file in kind.files)
        states[kind.name] = {"state": state, "codes": codes, "files": len(kind.files), "bytes": size, "damage": damage}
        lost = sorted(verdict.quarantined.get(kind.name, ()))
        if lost:
            states[kind.name]["quarantined"] = lost
    return states


def document(outcome: Outcome) -> Dict[str, Any]:
    """The status document: the structured line's content, every finding, every damaged path, the facts (secret-looking variables masked)."""
    facts = {name: masked(name, str(value)) if name.startswith("env.") and value is not None else value for name, value in outcome.facts.items()}
    return {
        "schema": 1,
        "version": baker.__version__,
        "pid": os.getpid(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **json.loads(line(outcome, "")),
        "kinds": _kinds(outcome),
        "details": [finding.document() for finding in outcome.verdict.findings],
        "facts": facts,
    }


def _writable_place(path: str) -> bool:
    """Whether a file can be put at `path`, in the place of nothing but a file or a link; its directory is made when only that is missing."""
    directory = os.path.dirname(path)
    if os.path.lexists(path):
        mode = os.lstat(path).st_mode  # BAKER_STATUS=/dev/null must not cost the container its device
        if not stat.S_ISREG(mode) and (not stat.S_ISLNK(mode) or directory == "/dev"):
            return False
    try:
        os.mkdir(directory, 0o755)
    except FileExistsError:
        return os.path.isdir(directory) and os.access(directory, os.W_OK | os.X_OK)
    except OSError:
        return False
    return True


def _put(path: str, data: bytes) -> None:
    """Replace a file; a device or pipe (/dev/null, /dev/stderr) is written to and stays what it is. Raises OSError."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG
    if stat.S_ISREG(mode):
        write_atomically(path, data, 0o644)
        return
    fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def write_status(outcome: Outcome, env: Mapping[str, str]) -> str:
    """Write the status file to BAKER_STATUS, else /run/baker/status.json, else $TMPDIR/baker-status.json; its path, or "" when no place takes it."""
    data = json.dumps(document(outcome), indent=1).encode("ascii")
    places = [env["BAKER_STATUS"]] if env.get("BAKER_STATUS") else [STATUS]
    try:
        places.append(temporary_directory(env) + "/baker-status.json")
    except UnusableError as error:
        say("status: %s" % error)
    for path in places:
        try:
            if _writable_place(path):
                _put(path, data)
                return path
        except (OSError, ValueError) as error:
            say("status: %s: %s" % (shown(path), error))
    say("status: not written, no writable place among %s" % ", ".join(map(shown, places)))
    return ""


def terminate(lines: List[str], env: Mapping[str, str]) -> None:
    """Leave the reason where Kubernetes shows it: BAKER_TERMINATION_LOG, else /dev/termination-log where it is, at most 4096 bytes."""
    wanted = env.get("BAKER_TERMINATION_LOG", "")
    path, create = wanted or TERMINATION_LOG, os.O_CREAT if wanted else 0
    data = "\n".join(lines).encode("utf-8", "backslashreplace")[:TERMINATION_BYTES]
    try:
        fd = os.open(path, os.O_WRONLY | create | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except (OSError, ValueError):
        return  # not Kubernetes, or not permitted: the same lines stand on stderr
    try:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.ftruncate(fd, 0)
            os.write(fd, data)
    except OSError as error:
        say("%s: %s" % (path, error))
    finally:
        os.close(fd)
