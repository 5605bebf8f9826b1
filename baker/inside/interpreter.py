"""Facts about the server's Python: version, ABI, distributions. Nothing of the server's is imported; metadata files are read by path."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import re
import sys
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

CHILD_S = 20.0  # an interpreter on a cold disk needs seconds, not more
OWN = (
    "import importlib.machinery,importlib.util,json,sys;"
    "print(json.dumps([sys.version.split()[0],importlib.machinery.EXTENSION_SUFFIXES[0],importlib.util.MAGIC_NUMBER.hex(),sys.path]))"
)
SITE = "import json,sys;print(json.dumps([p for p in sys.path if p]))"


class InterpreterError(Exception):
    """The server's interpreter cannot be asked; the text says which and why."""


def abi(suffix: str) -> str:
    """SOABI from the first extension suffix: `.cpython-311-x86_64-linux-gnu.so` -> `cpython-311-x86_64-linux-gnu` (sysconfig costs 8 ms more)."""
    return suffix.strip(".").rsplit(".", 1)[0]


def _ask(python: str, flags: Sequence[str], code: str) -> Any:
    import subprocess  # only here: start never needs it when the server runs on our own interpreter

    command = [python, *flags, "-c", code]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=CHILD_S, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise InterpreterError("%s: %s" % (python, error)) from None
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise InterpreterError("%s: exit %d: %s" % (python, done.returncode, last))
    try:
        return json.loads(done.stdout.decode("utf-8", "surrogateescape").rpartition("\n")[0].rpartition("\n")[2] or "null")
    except ValueError:
        raise InterpreterError("%s: answered no JSON" % python) from None


def describe(python: str = "") -> Dict[str, Any]:
    """python.executable, .version ("3.11.7"), .abi, .magic (of its byte code, hex) and .path (sys.path without site) of `python`, or of ourselves.

    The same binary is not started again: a virtual environment's link ends at the interpreter that runs this. Raises InterpreterError.
    """
    python = python or sys.executable
    if os.path.realpath(python) == os.path.realpath(sys.executable) and sys.flags.no_site:
        found = [sys.version.split()[0], importlib.machinery.EXTENSION_SUFFIXES[0], importlib.util.MAGIC_NUMBER.hex(), sys.path]
    else:
        found = _ask(python, ["-I", "-S"], OWN)
    if not isinstance(found, list) or len(found) != 4:
        raise InterpreterError("%s: answered %r" % (python, found))
    names = ("python.executable", "python.version", "python.abi", "python.magic", "python.path")
    # Under a zip our own sys.path begins with that zip, which is not the server's.
    path = [item for item in found[3] if item and item != sys.path[0]] if sys.flags.no_site else found[3]
    return dict(zip(names, (python, found[0], abi(str(found[1])), found[2], path)))


def python_site(python: str) -> Dict[str, List[str]]:
    """`path`: sys.path of `python` with its site-packages, `dist_info`: those of its directories that hold *.dist-info. Bake time only.

    Raises InterpreterError.
    """
    path = _ask(python, ["-I"], SITE)
    if not isinstance(path, list) or not all(isinstance(item, str) for item in path):
        raise InterpreterError("%s: answered %r" % (python, path))
    return {"path": path, "dist_info": [item for item in path if os.path.isdir(item) and any(n.endswith(".dist-info") for n in os.listdir(item))]}


def canonical_name(name: str) -> str:
    """A distribution's name in the form of PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _metadata(path: str) -> Optional[Tuple[str, str]]:
    """Name and version of one METADATA file (core metadata: headers until the first blank line)."""
    fields: Dict[str, str] = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if not line.strip() or {"name", "version"} <= fields.keys():
                    break
                key, _, value = line.partition(":")
                fields.setdefault(key.strip().lower(), value.strip())
    except OSError:
        return None  # a dist-info directory without METADATA is debris of a failed installation
    return (canonical_name(fields["name"]), fields["version"]) if {"name", "version"} <= fields.keys() else None


def _installed(directory: str, wanted: Optional[Set[str]]) -> Iterator[Tuple[str, str]]:
    """(name, version) of the distributions in one directory; only the METADATA of a wanted name is opened. Raises OSError, ValueError."""
    for entry in sorted(os.listdir(directory)):
        # the directory is called NAME-VERSION.dist-info, NAME with dashes as underscores
        if entry.endswith(".dist-info") and (wanted is None or canonical_name(entry.partition("-")[0]) in wanted):
            pair = _metadata(os.path.join(directory, entry, "METADATA"))
            if pair:
                yield pair


def packages(wanted: Optional[Sequence[str]], dist_info: Sequence[str]) -> Tuple[Dict[str, Any], str]:
    """Versions of the `wanted` distributions (PEP 503 names; None = all) in the dist-info directories, and why they cannot be told ("" if they can).

    A version is a string, None for a missing distribution, a sorted list when different versions are installed side by side.
    """
    found: Dict[str, Set[str]] = {name: set() for name in wanted or ()}
    read = 0
    for directory in dist_info:
        try:
            for name, version in _installed(directory, None if wanted is None else set(wanted)):
                if wanted is None or name in found:
                    found.setdefault(name, set()).add(version)
            read += 1
        except (OSError, ValueError):
            continue  # a recorded directory that is gone holds no distribution; all gone is the reason below
    if not read:
        return {}, "none of the dist-info directories can be read: %s" % (", ".join(dist_info) or "none was recorded")
    return {name: None if not v else min(v) if len(v) == 1 else sorted(v) for name, v in found.items()}, ""
