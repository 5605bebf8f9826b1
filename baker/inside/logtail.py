"""The server's output: masked into the log, watched line by line, and searched for the error that came first.

Lines end at LF or CR (progress bars); a longer line than LINE_LIMIT bytes is cut into pieces, secrets across the cut included.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from typing import Dict, Iterable, List, Mapping, Optional, Pattern, Sequence, Set, Tuple
from urllib.parse import quote

from baker.inside.job import Line, Watch

LINE_LIMIT = 65536  # bytes of one logged line
TEXT_LIMIT = 2000  # characters of a line in the result
PER_RULE = 1000  # lines kept for one watch rule; more are counted
SHORTEST_SECRET = 4  # characters: masking shorter values would only garble the log
MASK = b"***"

_SECRET_FLAG = re.compile(r"^--?[\w-]*(?:api[-_]?key|token|secret|password)$", re.I)


def argument_secrets(argv: Sequence[str]) -> List[str]:
    """Values that follow `--api-key`, `--hf-token` and the like, also as `--api-key=VALUE`."""
    found = []
    for i, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if _SECRET_FLAG.match(name):
            found.append(value if equals else (argv[i + 1] if i + 1 < len(argv) else ""))
    return [value for value in found if value]


class Masker:
    """Replaces secret values by `***`, also where they are JSON-escaped, URL-quoted, or spread over lines (PEM keys)."""

    def __init__(self, values: Iterable[str]) -> None:
        forms = set()
        for value in values:
            for part in [value, *value.splitlines()]:
                for form in (part, json.dumps(part)[1:-1], quote(part, safe=""), repr(part)[1:-1]):
                    if len(form) >= SHORTEST_SECRET:
                        forms.add(form.encode("utf-8", "surrogateescape"))
        ordered = sorted(forms, key=len, reverse=True)
        self.longest = len(ordered[0]) if ordered else 0
        self._pattern: Optional[Pattern[bytes]] = re.compile(b"|".join(re.escape(form) for form in ordered)) if ordered else None

    def data(self, data: bytes) -> bytes:
        """Masked bytes."""
        return self._pattern.sub(MASK, data) if self._pattern else data

    def text(self, text: str) -> str:
        """Masked text."""
        return self.data(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def secrets(names: Iterable[str], *environments: Mapping[str, str]) -> Tuple[List[str], List[str]]:
    """Values of the named variables in all environments, and a remark for each value that is too short to mask."""
    values, remarks = [], []
    for name in names:
        for value in {env[name] for env in environments if env.get(name)}:
            if len(value) < SHORTEST_SECRET:
                remarks.append("%s has fewer than %d characters: not masked in the log" % (name, SHORTEST_SECRET))
            else:
                values.append(value)
    return values, remarks


# "(EngineCore pid=123) ERROR 12-01 03:12:21 [core.py:1100] text": the part before the text, by vLLM's formatter
_PREFIX = re.compile(
    r"^(?:\([^()]*pid=\d+\) ?)?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\b[: ]\s*(?:\d\d-\d\d[ T][\d:.]+ (?:\[[^\]]*\])? ?)?)?"
)
_LOUD = ("ERROR", "CRITICAL", "FATAL")
# words of compilers, loaders and the kernel that stand before their message
_PLAIN_ERROR = re.compile(
    r"(?:^|[\s:])(?:fatal error|error|fatal|FATAL|[\w.]*Error|[\w.]*Exception)\s*[:!]\s"
    r"|Segmentation fault|[Oo]ut of memory|\bcommand not found\b|^Killed\b"
)
_NOT_AN_ERROR = ("KeyboardInterrupt", "SystemExit", "asyncio.exceptions.CancelledError", "CancelledError", "GeneratorExit")
_ANNOUNCED_WITHIN = 3  # lines: an ERROR line this close before a traceback only announces it
_MORE_LINES = 4  # of an exception message that spans lines


class FirstError:
    """Finds the root cause: the exception of the first traceback, or an earlier error line that no traceback follows.

    Chained tracebacks print the cause first, and vLLM repeats a worker's failure in each process above it, so the last error is only a symptom.
    Tracebacks logged below ERROR, and those of `Exception ignored in`, are not causes.
    """

    def __init__(self) -> None:
        self._found = ""
        self._candidate = ""  # an error line that may still turn out to announce a traceback
        self._age = 0
        self._open: Dict[str, str] = {}  # process prefix -> "skip" or "take" while in a traceback
        self._ignored: Set[str] = set()
        self._tail = ""  # prefix whose lines continue the found exception's message
        self._more = 0

    @property
    def text(self) -> str:
        """The first error so far; "" when there was none."""
        return self._found or self._candidate

    def feed(self, line: str) -> None:
        """Look at the next line of the log."""
        match = _PREFIX.match(line)
        head = match.group(0) if match else ""
        level = (match.group("level") or "") if match else ""
        rest = line[len(head) :]
        if self._more:
            self._continue(head, rest)
        if self._found:
            return
        if self._candidate:
            self._age += 1
            if self._age > _ANNOUNCED_WITHIN and not self._open:
                self._found, self._candidate = self._candidate, ""
                return
        self._inspect(head, level, rest)

    def _continue(self, head: str, rest: str) -> None:
        stops = not rest.strip() or rest.startswith(("Traceback", "During handling", "The above exception")) or head != self._tail
        self._more = 0 if stops else self._more - 1
        if not stops:
            self._found = (self._found + " " + rest.strip())[:TEXT_LIMIT]

    def _inspect(self, head: str, level: str, rest: str) -> None:
        quiet = level in ("DEBUG", "INFO", "WARNING")
        if rest.startswith("Exception ignored in"):
            self._ignored.add(head)
        elif rest.startswith("Traceback (most recent call last)"):
            self._open[head] = "skip" if quiet or head in self._ignored else "take"
            self._ignored.discard(head)
        elif head in self._open:
            self._in_traceback(head, rest)
        elif not self._candidate and not quiet and rest.strip() and (level in _LOUD or _PLAIN_ERROR.search(rest)):
            self._candidate, self._age = rest.strip()[:TEXT_LIMIT], 0

    def _in_traceback(self, head: str, rest: str) -> None:
        if not rest.strip() or rest[0] in " \t|+":
            return
        verdict = self._open.pop(head)
        if verdict == "take" and not rest.startswith(_NOT_AN_ERROR):
            self._found, self._candidate = rest.strip()[:TEXT_LIMIT], ""
            self._tail, self._more = head, _MORE_LINES


class LogTail:
    """Reads a pipe until it ends, in its own thread: masks, writes, watches. `stage` is set by the driver."""

    def __init__(self, pipe: int, path: str, masker: Masker, watch: Sequence[Watch], start: float) -> None:
        self.stage = "start"
        self.first_error = FirstError()
        self.last_line = ""
        self.lines: List[Line] = []
        self.remarks: List[str] = []
        self.settled = False  # True: the driver ends the server, later errors are no cause
        self._pipe, self._masker, self._start = pipe, masker, start
        self._rules = [(rule, re.compile(rule.pattern)) for rule in watch]
        self._counts: Dict[str, int] = {}
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._broken = False
        self._read_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def matched(self) -> Set[str]:
        """Names of the rules that matched so far."""
        return set(self._counts)

    def drain(self, quiet_s: float = 0.3, limit_s: float = 2.0) -> None:
        """Wait until the pipe ended or was quiet for a moment: children of a dead server may hold it open."""
        limit = time.monotonic() + limit_s
        while self._thread.is_alive() and time.monotonic() < min(limit, self._read_at + quiet_s):
            self._thread.join(0.02)

    def close(self, wait_s: float = 5.0) -> None:
        """Wait for the end of the pipe; a writer that survived everything must not hold up the driver."""
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self.remarks.append("the server's output was still open %g s after the end: the log may lack its last lines" % wait_s)
        self.remarks.extend("watch rule %s: %d lines, %d kept" % (k, n, PER_RULE) for k, n in self._counts.items() if n > PER_RULE)

    def _run(self) -> None:
        pending = b""
        while True:
            chunk = os.read(self._pipe, 65536)
            self._read_at = time.monotonic()
            if not chunk:
                break
            pieces = re.split(rb"\r\n|\n|\r", pending + chunk)
            pending = pieces.pop()
            for piece in pieces:
                self._line(self._masker.data(piece))
            pending = self._shorten(pending)
        if pending:
            self._line(self._masker.data(pending))
        os.close(self._pipe)
        os.close(self._file)

    def _shorten(self, pending: bytes) -> bytes:
        """Give out the start of an endless line; keep as much as could be the start of a secret."""
        while len(pending) > LINE_LIMIT + self._masker.longest:
            masked = self._masker.data(pending)
            if len(masked) <= LINE_LIMIT + self._masker.longest:
                return masked
            self._line(masked[:LINE_LIMIT])
            pending = masked[LINE_LIMIT:]
        return pending

    def _line(self, data: bytes) -> None:
        for at in range(0, max(len(data), 1), LINE_LIMIT):
            self._store(data[at : at + LINE_LIMIT] + b"\n")
        text = data[:LINE_LIMIT].decode("utf-8", "replace")
        self.last_line = text[:TEXT_LIMIT] if text.strip() else self.last_line
        if not self.settled:
            self.first_error.feed(text)
        for rule, pattern in self._rules:
            match = pattern.search(text)
            if match:
                self._keep(rule, text, match.group(1) if pattern.groups else None)

    def _keep(self, rule: Watch, text: str, number: Optional[str]) -> None:
        self._counts[rule.name] = self._counts.get(rule.name, 0) + 1
        if self._counts[rule.name] > PER_RULE:
            return
        value = None
        if rule.kind == "phase" and number is not None:
            try:
                value = float(number)
            except ValueError:
                self.remarks.append("watch rule %s: group 1 is %r, expected seconds" % (rule.name, number[:40]))
        at = round(time.monotonic() - self._start, 3)
        self.lines.append(Line(rule.name, rule.kind, text[:TEXT_LIMIT], at, self.stage, value))

    def _store(self, data: bytes) -> None:
        if self._broken:
            return
        try:
            os.write(self._file, data)
        except OSError as error:
            # Keep reading: a full disk must not block the server in its own write.
            self._broken = True
            self.remarks.append("the log is incomplete: %s" % error.strerror)
