"""The recorder: `sitecustomize` of tools.zip. Each Python process of the server appends what it compiles to `$BAKER_RECORD/<pid>.jsonl`.

It imports nothing of baker, patches nothing and changes no cache key. Without BAKER_RECORD it does nothing but run the `sitecustomize` that it
shadows. Whatever goes wrong in here becomes a line `recorder-error`: the server must not notice.

Lines (JSON objects; `t` is CLOCK_MONOTONIC in seconds, one clock for all processes):
  start     pid, ppid, argv, executable, forked    torch     the heartbeat: torch was imported here
  child     how, argv (list, or the string of a shell)    triton    hit, name, key
  counters  inductor, aot_autograd: absolute values    base      the same, inherited over a fork
  dump      request, modules (source files), counters    recorder-error  error
  end       the interpreter ends in order; torch: was it imported
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

POLL_S = 0.25  # how often the thread looks for torch, counters, and a dump request
GROUPS = ("inductor", "aot_autograd")  # groups of torch._dynamo.utils.counters that hold cache counters (torch 2.13.0)
DUMP_REQUEST = "dump-request"
ARGV_LIMIT = 200  # words of a command line
WORD_LIMIT = 1000  # characters of a word
SHORTEST_SECRET = 8  # characters: a shorter value of a variable named like a secret is no secret ("1", "true")

# Coarse on purpose: baker.inside.events decides what is a compile. Here only programs that could be one pass.
_COMPILER = re.compile(
    r"(?:^|[\s/;&|(\"'-])(?:g?cc|[gc]\+\+|clang(?:\+\+)?|nvcc|cicc|cudafe\+\+|ptxas|fatbinary|nvlink|ld|lld|gold|as|ninja|samu|ic[pc]?x|icpc|icc|hipcc|cc1(?:plus)?|collect2)"
    r"\d*(?:[-.][\w.+-]+)?(?=$|[\s;&|)\"'])"
)
_SECRET = re.compile(r"(?:key|token|secret|password)", re.I)
_CHILD_EVENTS = {"subprocess.Popen": 1, "os.exec": 1, "os.posix_spawn": 1, "os.system": 0}  # -> index of the command line


def _words(command: Any) -> Union[str, List[str]]:
    """A command line as a list of text, or as text when it is one string."""
    if isinstance(command, (str, bytes)) or hasattr(command, "__fspath__"):
        return os.fsdecode(command)[: ARGV_LIMIT * WORD_LIMIT]
    return [os.fsdecode(word)[:WORD_LIMIT] for word in list(command)[:ARGV_LIMIT]]


def _hidden(text: str) -> str:
    """Values of variables that are named like secrets become `***`."""
    for name, value in os.environ.items():
        if len(value) >= SHORTEST_SECRET and _SECRET.search(name):
            text = text.replace(value, "***")
    return text


def _without_secrets(argv: Sequence[str]) -> List[str]:
    """The same for a command line, and for what follows `--api-key` and the like: record files are kept."""
    out = []
    hide = False
    for word in argv:
        name, equals, _ = word.partition("=")
        secret = name.startswith("-") and bool(_SECRET.search(name))
        out.append("***" if hide else (name + "=***" if secret and equals else word))
        hide = secret and not equals
    return [_hidden(word) for word in out]


class Recorder:
    """One process's recorder. Every entry from outside runs under `_safe`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.counters: Dict[str, Dict[str, int]] = {}
        self.torch = False
        self.request: Optional[int] = None
        self.listener: Optional[Callable[..., Any]] = None
        self.restart = False
        self.lock = threading.RLock()  # re-entrant: the audit hook may run inside the poll
        self.stop = threading.Event()
        self.thread: Optional[threading.Thread] = None

    def write(self, event: str, **fields: Any) -> None:
        """Append one line; opened for each, so that a server that closes or reuses descriptors is never hurt."""
        fields.update(e=event, t=round(time.monotonic(), 4))
        data = (json.dumps(fields) + "\n").encode("utf-8", "backslashreplace")
        path = os.path.join(self.directory, "%d.jsonl" % os.getpid())
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def safe(self, function: Callable[..., Any], *args: Any) -> None:
        """Call; an exception becomes a `recorder-error` line, and a record that cannot be written leaves this process unobserved."""
        try:
            function(*args)
        except Exception as error:  # noqa: BLE001 - the server must never see it
            try:
                self.write("recorder-error", error="%s: %s" % (type(error).__name__, error))
            except Exception:  # noqa: BLE001 - nowhere left to say it; the missing lines make the process "unobserved"
                self.stop.set()

    def begin(self, forked: bool = False) -> None:
        """Say who this is and start the thread."""
        argv = [os.fsdecode(word) for word in getattr(sys, "orig_argv", None) or sys.argv or []]
        self.write("start", pid=os.getpid(), ppid=os.getppid(), executable=sys.executable, argv=_without_secrets(argv)[:ARGV_LIMIT], forked=forked)
        if forked and self.counters:
            self.write("base", **self.counters)
        self.start_thread()

    def start_thread(self) -> None:
        """The polling thread, a daemon."""
        self.restart = False
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.loop, args=(self.stop,), name="baker-recorder", daemon=True)
        self.thread.start()

    def loop(self, stop: threading.Event) -> None:
        """Poll until stopped."""
        while not stop.wait(POLL_S):
            self.safe(self.poll)

    def poll(self) -> None:
        """Look at torch, Triton, the counters, and for a dump request."""
        with self.lock:
            if not self.torch and "torch" in sys.modules:
                self.torch = True
                self.write("torch")
            self.listen()
            self.count()
            self.answer()

    def end(self) -> None:
        """The last look."""
        self.poll()
        self.write("end", torch=self.torch)

    def count(self) -> None:
        """Write the counters when they changed."""
        now = self.read_counters()
        if now and now != self.counters:
            self.counters = now
            self.write("counters", **now)

    def read_counters(self) -> Dict[str, Dict[str, int]]:
        """Copy of the cache counters, {} before torch._dynamo.utils is there."""
        groups = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
        if groups is None:
            return {}
        # .get, not []: reading a defaultdict must not add a group to it
        found = {name: dict(groups.get(name) or {}) for name in GROUPS}
        return {name: {str(k): int(v) for k, v in group.items()} for name, group in found.items() if group}

    def answer(self) -> None:
        """Answer a dump request once: source files of all modules, read without running any module's __getattr__."""
        try:
            request = os.stat(os.path.join(self.directory, DUMP_REQUEST)).st_mtime_ns
        except OSError:
            return
        if request == self.request:
            return
        self.request = request
        files = set()
        for module in list(sys.modules.values()):
            if isinstance(module, type(sys)):
                path = object.__getattribute__(module, "__dict__").get("__file__")
                if isinstance(path, str) and path.endswith(".py"):
                    files.add(path)
        self.write("dump", request=request, modules=sorted(files), counters=self.counters)

    def listen(self) -> None:
        """Put our listener before the one that Triton has (triton/knobs.py, CompilationListener: keyword arguments only)."""
        with self.lock:
            compilation = getattr(sys.modules.get("triton.knobs"), "compilation", None)
            current = getattr(compilation, "listener", None)
            if compilation is None or (self.listener is not None and current is self.listener):
                return
            self.listener = self.chain(current)
            compilation.listener = self.listener

    def chain(self, previous: Optional[Callable[..., Any]]) -> Callable[..., Any]:
        """A listener that records, then calls `previous`."""

        def listener(**event: Any) -> Any:
            self.safe(self.kernel, event)
            return previous(**event) if previous is not None else None

        return listener

    def kernel(self, event: Dict[str, Any]) -> None:
        """One Triton compilation, or one load from its cache."""
        metadata = event.get("metadata") or {}
        name = metadata.get("name") or getattr(event.get("src"), "name", "?")
        self.write("triton", hit=bool(event.get("cache_hit")), name=str(name), key=str(metadata.get("hash", "")))

    def audit(self, event: str, args: Tuple[Any, ...]) -> None:
        """Audit hook; called for every event of the interpreter, so the common case is one or two comparisons."""
        if self.listener is None and "triton.knobs" in sys.modules:
            self.safe(self.listen)  # at once: a kernel may be compiled before the next poll
        if event in _CHILD_EVENTS:
            self.safe(self.child, event, args)
        if self.restart and not sys.is_finalizing():
            self.safe(self.start_thread)

    def child(self, event: str, args: Tuple[Any, ...]) -> None:
        """Record a child process when it could be a compiler."""
        words = _words(args[_CHILD_EVENTS[event]])
        text = words if isinstance(words, str) else " ".join(words)
        if _COMPILER.search(text):
            self.write("child", how=event, argv=_hidden(words) if isinstance(words, str) else _without_secrets(words))

    def before_fork(self) -> None:
        """No thread and no held lock cross a fork."""
        self.stop.set()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(1.0)
        self.thread = None

    def after_in_parent(self) -> None:
        """Python 3.12 warns of threads right after this: the next audit event starts ours again."""
        self.restart = True

    def after_in_child(self) -> None:
        """The child has its own file."""
        self.lock = threading.RLock()
        self.request = None
        self.torch = False
        self.safe(self.begin, True)

    def install(self) -> None:
        """Begin to record this process."""
        self.begin()
        sys.addaudithook(self.audit)
        os.register_at_fork(before=self.before_fork, after_in_parent=self.after_in_parent, after_in_child=self.after_in_child)
        atexit.register(self.safe, self.end)


def shadowed(own: str) -> Any:
    """Spec of the next `sitecustomize` on sys.path after `own` (the path entry that this file came from), or None."""
    from importlib.machinery import PathFinder

    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != own]
    return PathFinder.find_spec("sitecustomize", rest)


def chain_sitecustomize() -> None:
    """Run the `sitecustomize` that this one shadows under its own name; what it raises is its own affair, as without us."""
    from importlib.util import module_from_spec

    spec = shadowed(os.path.dirname(os.path.abspath(__file__)))
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def main() -> None:
    """Entry as `sitecustomize`."""
    if os.environ.get("BAKER_RECORD"):
        recorder = Recorder(os.environ["BAKER_RECORD"])
        recorder.safe(recorder.install)
    chain_sitecustomize()


if __name__ == "sitecustomize":
    main()
