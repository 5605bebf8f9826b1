"""Observe this machine: a flat dictionary of named facts, only those that are asked for, nothing of the server's imported.

Facts (None = it is known that there is none; one that cannot be told is None too, with the reason in `facts["unknown"][name]`):
cpu.arch cpu.model cpu.isa cpu.vector cpu.count, os.kernel libc uid gid home.writable, python.executable python.version python.abi
python.magic python.path, python.packages python.dist_info (every distribution; for the builder, with `site`), pkg.<PEP 503 name>, env.<NAME>,
libstdcxx.version lib.<soname> tool.cxx tool.cc tool.ninja tool.file tool.nvcc tool.ptxas tool.cuobjdump,
gpu.count gpu.name gpu.cc gpu.sm_count gpu.memory (bytes) gpu.mig gpu.processes gpu.virtual gpu.error,
driver.version driver.module cuda.driver_api cuda.library cuda.library_version cuda.forward_compat. `facts["sources"][name]` says who answered.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence

from baker.inside import cpu, libraries

_DRIVER = ("driver.version", "driver.module", "cuda.driver_api", "cuda.library", "cuda.library_version", "cuda.forward_compat")
GPU = (*_DRIVER, *("gpu." + name for name in ["count", "name", "cc", "sm_count", "memory", "mig", "processes", "virtual", "error"]))
_MAY_BE_NONE = ("gpu.mig",)
# Which source answers, by the beginning of a fact's name; the driver's facts say it themselves.
SOURCES = {
    "cpu.": "/proc/cpuinfo",
    "pkg.": "dist-info directories",
    "env.": "environment",
    "tool.": "PATH",
    "python.": "interpreter",
    "gpu.": "libcuda",
    "cuda.": "libcuda",
}
PYTHON = ("python.executable", "python.version", "python.abi", "python.magic", "python.path", "python.packages", "python.dist_info")


class UnknownError(Exception):
    """A fact that cannot be told; the text is the reason."""


def which(program: str, env: Mapping[str, str], leave_out: str = "") -> Optional[str]:
    """Absolute path of an executable file, searched on env's PATH without the directory `leave_out`; a name with '/' is taken as it is."""
    if "/" in program:
        return program if _executable(program) else None
    for directory in env.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(directory or ".", program)
        if (not leave_out or os.path.realpath(directory) != os.path.realpath(leave_out)) and _executable(path):
            return os.path.abspath(path)
    return None


def _executable(path: str) -> bool:
    return "\0" not in path and os.path.isfile(path) and os.access(path, os.X_OK)


def _compiler(variable: str, programs: Sequence[str], env: Mapping[str, str]) -> Optional[str]:
    """The variable's program, else the first of `programs` on PATH."""
    chosen = env.get(variable)
    return next((path for path in (which(p, env) for p in ([chosen] if chosen else programs)) if path), None)


def _toolkit(program: str, env: Mapping[str, str]) -> Optional[str]:
    """A program of the CUDA toolkit: of CUDA_HOME (the default is that of torch and FlashInfer), else on PATH."""
    home = env.get("CUDA_HOME") or env.get("CUDA_PATH") or "/usr/local/cuda"
    return which(os.path.join(home, "bin", program), env) or which(program, env)


def _libc(env: Mapping[str, str]) -> str:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        text = None
    if not text:
        raise UnknownError("the C library does not tell CS_GNU_LIBC_VERSION (musl?)")
    return text


def _cpuinfo() -> Dict[str, str]:
    try:
        return cpu.read_cpuinfo()
    except OSError as error:
        raise UnknownError("/proc/cpuinfo: %s" % error) from None


def _told(value: Any, reason: str) -> Any:
    if value is None:
        raise UnknownError(reason)
    return value


def home_writable(env: Mapping[str, str]) -> bool:
    """Whether HOME names a directory other than / in which this user can make files."""
    home = env.get("HOME", "")
    return home.startswith("/") and home.strip("/") != "" and "\0" not in home and os.path.isdir(home) and os.access(home, os.W_OK | os.X_OK)


# torch 2.13.0 (_inductor/config.py, cpp_builder.py): CXX, else g++. Triton 3.8 (runtime/build.py): CC, else gcc, else clang.
SIMPLE: Dict[str, Callable[[Mapping[str, str]], Any]] = {
    "cpu.arch": lambda env: os.uname().machine,
    "cpu.model": lambda env: _told(cpu.model(_cpuinfo()), "/proc/cpuinfo names no model"),
    "cpu.isa": lambda env: _told(cpu.isa(_cpuinfo()), "/proc/cpuinfo lists no flags"),
    "cpu.vector": lambda env: _told(cpu.vector(_cpuinfo(), os.uname().machine, env), "/proc/cpuinfo lists no flags"),
    "cpu.count": lambda env: cpu.count(),
    "os.kernel": lambda env: os.uname().release,
    "libc": _libc,
    "libc.version": lambda env: _libc(env).rpartition(" ")[2],
    "uid": lambda env: os.getuid(),
    "gid": lambda env: os.getgid(),
    "home.writable": home_writable,
    "tool.cxx": lambda env: _compiler("CXX", ("g++",), env),
    "tool.cc": lambda env: _compiler("CC", ("gcc", "clang"), env),
    "tool.ninja": lambda env: which("ninja", env),
    "tool.file": lambda env: which("file", env),
    "tool.file.found": lambda env: which("file", env) is not None,
    "libstdcxx.version": lambda env: libraries.newest(libraries.find("libstdc++.so.6", env), "GLIBCXX"),
    "tool.nvcc": lambda env: _toolkit("nvcc", env),
    "tool.ptxas": lambda env: _toolkit("ptxas", env),
    "tool.cuobjdump": lambda env: _toolkit("cuobjdump", env),
}


def _gpu(names: Iterable[str], facts: Dict[str, Any], unknown: Dict[str, str]) -> None:
    from baker.inside import gpu

    found = gpu.query()
    # A machine without a GPU has no name or capability to tell: that is known, not unknown.
    none = found.get("gpu.count") == 0
    for name in names:
        facts[name] = found.get(name)
        if facts[name] is None and not (name in _MAY_BE_NONE and name in found) and name != "gpu.error" and not (none and name.startswith("gpu.")):
            unknown[name] = found.get("gpu.error") or "the driver does not tell"
    facts["sources"] = found.get("sources", {})


def _python(names: Sequence[str], python: str, dist_info: Sequence[str], facts: Dict[str, Any], unknown: Dict[str, str]) -> None:
    from baker.inside import interpreter

    try:
        found = interpreter.describe(python)
    except interpreter.InterpreterError as error:
        found = {}
        unknown.update({name: str(error) for name in names})
    if "python.packages" in names:
        found["python.packages"], reason = interpreter.packages(None, dist_info)
        if reason:
            unknown["python.packages"] = reason
    found["python.dist_info"] = list(dist_info) or None
    facts.update({name: found.get(name) for name in names})


def _packages(names: Sequence[str], dist_info: Sequence[str], facts: Dict[str, Any], unknown: Dict[str, str]) -> None:
    from baker.inside import interpreter

    wanted = {name: interpreter.canonical_name(name[4:]) for name in names}
    found, reason = interpreter.packages(list(wanted.values()), dist_info)
    for name, key in wanted.items():
        facts[name] = found.get(key)
        if reason:
            unknown[name] = reason


def _simple(name: str, env: Mapping[str, str], facts: Dict[str, Any], unknown: Dict[str, str]) -> None:
    facts[name] = None
    if name.startswith("env."):
        facts[name] = env.get(name[4:])
    elif name.startswith("lib."):
        facts[name] = libraries.find(name[4:], env)
    elif name not in SIMPLE:
        unknown[name] = "not a fact that this version of baker observes"
    else:
        try:
            facts[name] = SIMPLE[name](env)
        except UnknownError as error:
            unknown[name] = str(error)


def observe(names: Iterable[str], python: str = "", dist_info: Sequence[str] = (), env: Optional[Mapping[str, str]] = None) -> Dict[str, Any]:
    """The facts `names` of this machine, and "unknown": {name: reason}. Raises nothing for a fact that cannot be told.

    `python` is the server's interpreter ("" = the one that runs this), `dist_info` the directories that hold its *.dist-info directories,
    `env` the server's environment (default: ours). A GPU is asked in a child process for at most 5 s, and only when a GPU fact is wanted.
    """
    env = os.environ if env is None else env
    unique = sorted(set(names))
    facts: Dict[str, Any] = {}
    unknown: Dict[str, str] = {}
    groups: Dict[str, List[str]] = {"gpu": [], "python": [], "pkg": [], "": []}
    for name in unique:
        group = "gpu" if name in GPU else "python" if name in PYTHON else "pkg" if name.startswith("pkg.") else ""
        groups[group].append(name)
    for name in groups[""]:
        _simple(name, env, facts, unknown)
    if groups["gpu"]:
        _gpu(groups["gpu"], facts, unknown)
    if groups["python"]:
        _python(groups["python"], python, dist_info, facts, unknown)
    if groups["pkg"]:
        _packages(groups["pkg"], dist_info, facts, unknown)
    facts["unknown"] = unknown
    told = facts.get("sources", {})
    facts["sources"] = {name: source for name in unique if name not in unknown and (source := told.get(name) or _source(name))}
    return facts


def _source(name: str) -> str:
    return next((source for prefix, source in SOURCES.items() if name.startswith(prefix)), "")


def _request(text: str) -> Dict[str, Any]:
    """Validate the request of `main`. Raises ValueError saying what was found and expected."""
    request = json.loads(text)
    if not isinstance(request, dict):
        raise ValueError("found %s, expected an object" % type(request).__name__)
    for key, kind in (("names", list), ("python", str), ("dist_info", list), ("site", bool)):
        if key in request and not isinstance(request[key], kind):
            raise ValueError("%s: found %s, expected %s" % (key, type(request[key]).__name__, kind.__name__))
        if kind is list and not all(isinstance(item, str) for item in request.get(key, [])):
            raise ValueError("%s: expected strings" % key)
    return request


def main(argv: Sequence[str] = ()) -> int:
    """`probe`: JSON {"names": [...], "python": "", "dist_info": [...], "site": false} on stdin, facts as JSON on stdout.

    With "site", `python` is asked with its site-packages: python.path is its full sys.path, and the dist-info directories on it are used
    when none were given; the answer also has "site": {"path", "dist_info"}.
    Exit 0; 2 for a request that cannot be read; 3 when `python` cannot be asked for its site.
    """
    from baker.inside import interpreter

    try:
        request = _request(sys.stdin.read())
    except (ValueError, RecursionError) as error:
        print('probe: bad request: %s; expected {"names": [...], "python": "", "dist_info": [...], "site": false}' % error, file=sys.stderr)
        return 2
    python, dist_info = request.get("python", ""), request.get("dist_info", [])
    site = None
    if request.get("site"):
        try:
            site = interpreter.python_site(python or sys.executable)
        except (interpreter.InterpreterError, OSError) as error:
            print("probe: %s" % error, file=sys.stderr)
            return 3
    facts = observe(request.get("names", []), python, dist_info or (site["dist_info"] if site else ()))
    if site is not None:
        facts["site"] = site
        if "python.path" in facts:
            facts["python.path"] = site["path"]
    print(json.dumps(facts))
    return 0
