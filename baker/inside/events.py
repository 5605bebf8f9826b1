"""From the recorder's lines to compile events, counters and processes; and the rule that tells a compile from a question to a compiler.

A compile event (design 5.6) is a Triton compilation that was no cache hit, the growth of an Inductor or AOTAutograd miss or bypass counter, or a
child compiler, assembler, linker or ninja that was given an input.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

from baker.inside.job import Event

Command = Union[str, Sequence[str]]

# Counters of torch._dynamo.utils.counters that grow when a compiled result was not taken from the cache (read at torch 2.13.0:
# _inductor/codecache.py, _functorch/_aot_autograd/autograd_cache.py). Inductor's async_compile_cache_miss is not among them: it counts a cache
# in memory and grows on every disk hit too.
MISSES = {
    "inductor.fxgraph_cache_miss": "inductor-miss",
    "inductor.fxgraph_cache_bypass": "inductor-bypass",
    "aot_autograd.autograd_cache_miss": "inductor-miss",
    "aot_autograd.autograd_cache_guard_miss": "inductor-miss",
    "aot_autograd.autograd_cache_bypass": "inductor-bypass",
}

_TARGET = r"(?:[A-Za-z0-9_.]+-)*"  # x86_64-linux-gnu-
_VERSION = r"(?:-?\d+(?:\.\d+)*)?"
_DRIVER = re.compile("^" + _TARGET + r"(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+|icx|icpx|icc|icpc|hipcc|nvcc)" + _VERSION + "$")
_TOOL = re.compile(
    "^" + _TARGET + r"(?:as|ld|ld\.\w+|lld|gold|cicc|cudafe\+\+|ptxas(?:-\w+)?|fatbinary|nvlink|cc1|cc1plus|collect2)" + _VERSION + "$"
)
_NINJA = re.compile(r"^(?:ninja|ninja-build|samu)$")
_SHELL = re.compile(r"^(?:ba|da|z|k)?sh$")
_WRAPPERS = ("env", "ccache", "sccache", "distcc", "nice", "nohup", "time", "exec", "command")

# A compiler that sees one of these answers and ends, whatever else it was given.
_QUESTIONS = ("--version", "-version", "-V", "--help", "-help", "-###", "--dryrun", "-dryrun", "--list-gpu-arch", "--list-gpu-code")
_QUESTION_PREFIXES = ("-dump", "-print-", "--print-", "--help=")
_PREPROCESS = ("-E", "-M", "-MM", "-dM")
# Options whose value is the next word, so that this word is no input (GCC 12, Clang 16, nvcc 13 manuals).
_VALUE_WORDS = """
    -o -x -I -D -U -L -l -B -T -u -z -e -A -F -G -MF -MT -MQ -MJ -include -imacros -isystem -iquote -idirafter -iprefix -iwithprefix
    -isysroot -iframework -framework -Xlinker -Xassembler -Xpreprocessor -Xclang -Xcompiler -Xptxas -Xnvlink -Xfatbin -Xcudafe -ccbin -arch
    -code -target -gencode -std -maxrregcount -odir -rdc -t --param --sysroot --gpu-architecture --gpu-code --generate-code
    --compiler-bindir --output-file --include-path --define-macro --library --library-path --threads --machine -m --std --maxrregcount
"""
_WITH_VALUE = frozenset(_VALUE_WORDS.split())
_OPTIONS_FILE = ("--options-file", "-optf")
_DEPTH = 4  # nested shells and wrappers that are followed


def _is_question(word: str) -> bool:
    return word in _QUESTIONS or word.startswith(_QUESTION_PREFIXES)


def _inputs(args: Sequence[str]) -> List[str]:
    """Words that a compiler driver reads as input: files, `-` and `@response` files, not values of options."""
    found, skip, only_files = [], False, False
    for word in args:
        if skip:
            skip = False
        elif only_files or not word.startswith("-") or word == "-" or word in _OPTIONS_FILE:
            found.append(word)
        elif word == "--":
            only_files = True
        else:
            skip = word in _WITH_VALUE
    return [word for word in found if word not in ("", "/dev/null")]


def _driver(args: Sequence[str]) -> bool:
    inputs = _inputs(args)
    if any(_is_question(word) for word in args):
        return False
    if any(word in _PREPROCESS for word in args):
        inputs = [word for word in inputs if word != "-"]  # `echo | g++ -E -dM -`: asks for macros
    return bool(inputs)


def _tool(args: Sequence[str]) -> bool:
    """Assemblers, linkers and the passes below nvcc: anything but a question is work; without a file they read standard input."""
    if any(_is_question(word) or word in ("-h",) for word in args):
        return False
    if ("-o", "/dev/null") in zip(args, args[1:]) and not any(word.endswith((".o", ".a", ".so", ".bc", ".s")) for word in args):
        return False  # ctypes.util.find_library asks the linker where a library is: `ld -t … -o /dev/null -lNAME`
    return any(not word.startswith("-") or "file=" in word for word in args)


def _ninja(args: Sequence[str]) -> bool:
    """ninja reads build.ninja when nothing is named; `-v` is only louder. Questions: version, help, dry run, and `-t` tools."""
    return not any(word in ("--version", "-h", "--help", "-n") or word.startswith("-t") for word in args)


def _segments(text: str) -> List[List[str]]:
    """Simple commands of a shell string; what does not parse is split at blanks."""
    try:
        lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=";&|()")
        lexer.whitespace_split, lexer.commenters = True, ""
        words = list(lexer)
    except ValueError:
        words = text.split()
    out: List[List[str]] = [[]]
    for word in words:
        if word and set(word) <= set(";&|()"):
            out.append([])
        else:
            out[-1].append(word)
    return [segment for segment in out if segment]


def _unwrapped(argv: Sequence[str]) -> List[str]:
    """argv without leading VAR=value words and programs that only start another one."""
    rest = list(argv)
    while rest:
        name = os.path.basename(rest[0])
        if re.match(r"^[A-Za-z_]\w*=", rest[0]):
            rest.pop(0)
        elif name in _WRAPPERS and len(rest) > 1:
            rest.pop(0)
            while rest and rest[0].startswith("-"):
                takes_value = rest.pop(0) in ("-n", "-u", "-C", "-S")
                if takes_value and rest:
                    rest.pop(0)
        else:
            break
    return rest


def compiles(command: Command, depth: int = _DEPTH) -> str:
    """The command line (at most 500 characters) when it compiles, assembles, links or builds something; "" when it only asks or is another program.

    A string is what a shell gets. `-E`, `-M`, `-MM` and `-dM` count when a real file is read, not for `-` or /dev/null; /dev/null never is an input.
    """
    if isinstance(command, str):
        return next((found for found in (compiles(segment, depth - 1) for segment in _segments(command)) if found), "") if depth > 0 else ""
    argv = _unwrapped(command)
    if not argv:
        return ""
    name, args = os.path.basename(argv[0]), argv[1:]
    if _SHELL.match(name):
        script = next((args[i + 1] for i, word in enumerate(args[:-1]) if re.match(r"^-[a-z]*c[a-z]*$", word)), "")
        return compiles(script, depth - 1) if script else ""
    for pattern, rule in ((_DRIVER, _driver), (_TOOL, _tool), (_NINJA, _ninja)):
        if pattern.match(name):
            return " ".join(argv)[:500] if rule(args) else ""
    return ""


@dataclass
class Record:
    """Everything that the recorders of one run wrote. `torn` counts lines that ended in the middle (a killed process)."""

    events: List[Event] = field(default_factory=list)
    counters: Dict[str, int] = field(default_factory=dict)  # "inductor.fxgraph_cache_miss": growth, summed over processes
    started: Set[int] = field(default_factory=set)
    torch: Set[int] = field(default_factory=set)
    ended: Set[int] = field(default_factory=set)  # ended in order, their counters are complete
    dumped: Dict[int, int] = field(default_factory=dict)  # pid -> dump request that it answered last
    modules: Set[str] = field(default_factory=set)
    errors: List[str] = field(default_factory=list)
    torn: int = 0

    def observed(self, pid: int, torch: bool) -> bool:
        """Did the recorder report from `pid`. With torch mapped a start is not enough: the heartbeat, or an end in order without `import torch`."""
        return pid in self.started and (not torch or pid in self.torch or pid in self.ended)

    def remarks(self) -> List[str]:
        """What went wrong while recording; at most 20 errors."""
        torn = ["%d torn lines in the record" % self.torn] if self.torn else []
        return self.errors[:20] + torn


def request_dump(directory: str) -> int:
    """Ask all recorders for their counters and modules. Returns the request's number (its mtime in ns). Raises OSError."""
    path = os.path.join(directory, "dump-request")
    with open(path, "wb"):
        os.utime(path)
    return os.stat(path).st_mtime_ns


def _lines(path: str, record: Record) -> Iterator[Mapping[str, Any]]:
    with open(path, encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                doc = json.loads(text)
                if not isinstance(doc, dict) or not isinstance(doc.get("t"), (int, float)):
                    raise ValueError(text)
            except ValueError:
                record.torn += 1
                continue
            yield doc


def _flat(doc: Mapping[str, Any]) -> Dict[str, int]:
    groups = [(name, group) for name, group in doc.items() if isinstance(group, dict)]
    return {"%s.%s" % (name, k): v for name, group in groups for k, v in group.items() if isinstance(v, int)}


class _Process:
    """Turns the lines of one process into events."""

    def __init__(self, pid: int, record: Record, when: Callable[[float], Tuple[float, str]]) -> None:
        self.pid, self.record, self.when = pid, record, when
        self.seen: Dict[str, int] = {}
        self.last_child = ("", -1.0)

    def event(self, kind: str, detail: str, t: float) -> None:
        at, stage = self.when(t)
        self.record.events.append(Event(kind, self.pid, detail, stage, round(at, 3)))

    def take(self, doc: Mapping[str, Any]) -> None:
        """One line; lines of a kind that this version does not know are left alone."""
        handler = getattr(self, "on_" + str(doc.get("e")).replace("-", "_"), None)
        if handler is not None:
            handler(doc, float(doc["t"]))

    def on_start(self, doc: Mapping[str, Any], t: float) -> None:
        self.record.started.add(self.pid)

    def on_torch(self, doc: Mapping[str, Any], t: float) -> None:
        self.record.torch.add(self.pid)

    def on_end(self, doc: Mapping[str, Any], t: float) -> None:
        self.record.ended.add(self.pid)

    def on_recorder_error(self, doc: Mapping[str, Any], t: float) -> None:
        self.record.errors.append("recorder in process %d: %s" % (self.pid, doc.get("error")))

    def on_dump(self, doc: Mapping[str, Any], t: float) -> None:
        self.record.dumped[self.pid] = int(doc.get("request") or 0)
        self.record.modules.update(str(path) for path in doc.get("modules") or [])

    def on_base(self, doc: Mapping[str, Any], t: float) -> None:
        self.seen = _flat(doc)

    def on_counters(self, doc: Mapping[str, Any], t: float) -> None:
        for name, value in _flat(doc).items():
            before = self.seen.get(name, 0)
            growth = value - before if value >= before else value  # a cleared counter starts again from 0
            self.seen[name] = value
            if growth:
                self.record.counters[name] = self.record.counters.get(name, 0) + growth
            if growth and name in MISSES:
                self.event(MISSES[name], "%s +%d" % (name, growth), t)

    def on_triton(self, doc: Mapping[str, Any], t: float) -> None:
        if not doc.get("hit"):
            self.event("triton-compile", "%s %s" % (doc.get("name"), doc.get("key")), t)

    def on_child(self, doc: Mapping[str, Any], t: float) -> None:
        argv = doc.get("argv")
        found = compiles(argv if isinstance(argv, str) else [str(word) for word in argv or []])
        text, at = self.last_child
        # subprocess may go on through posix_spawn, which audits the same command line again at once
        if found and not (doc.get("how") != "subprocess.Popen" and text == found and t - at < 0.1):
            self.event("child-compiler", found, t)
        self.last_child = (found, t)


def read(directory: str, when: Callable[[float], Tuple[float, str]], mask: Optional[Callable[[str], str]] = None) -> Record:
    """Read all `<pid>.jsonl` of a record directory. `when` maps a monotonic time to (seconds since the spawn, stage). Raises OSError."""
    record = Record()
    for name in sorted(os.listdir(directory)):
        stem, _, suffix = name.partition(".")
        if stem.isdigit() and suffix == "jsonl":
            process = _Process(int(stem), record, when)
            for doc in _lines(os.path.join(directory, name), record):
                process.take(doc)
    record.events.sort(key=lambda event: event.at_s)
    if mask is not None:
        record.events = [Event(e.kind, e.pid, mask(e.detail), e.stage, e.at_s) for e in record.events]
        record.errors = [mask(text) for text in record.errors]
    return record
