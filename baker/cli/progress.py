"""Progress on stderr: a live line on a terminal, one plain line a step everywhere else (CI logs, pipes)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.status import Status


class Reporter:
    """Says what is being done. `step` opens a step and ends the one before; on a terminal it shows a spinner until then, then the seconds it took."""

    def __init__(self, stream: TextIO | None = None, verbose: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._verbose = verbose
        self._clock = clock
        self._console: Any = None
        self._status: Status | None = None
        self._text = ""
        self._since = 0.0
        if self._stream.isatty():
            from rich.console import Console  # 60 ms of import that a pipe need not pay

            self._console = Console(file=self._stream, highlight=False, markup=False, emoji=False)

    def step(self, text: str) -> None:
        """Begin a step."""
        self.close()
        self._text, self._since = text, self._clock()
        if self._console is None:
            self._line(text)
        else:
            from rich.text import Text

            self._status = self._console.status(Text(text))
            self._status.start()

    def note(self, text: str) -> None:
        """A remark that belongs to the present step."""
        self._line(f"  {text}")

    def detail(self, text: str) -> None:
        """A remark that is shown with -v only."""
        if self._verbose:
            self._line(f"  {text}")

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table on stderr, for progress; a command's result goes through Console.table."""
        self._line(title)
        for line in table(columns, rows):
            self._line(f"  {line}")

    def close(self) -> None:
        """End the present step."""
        status, self._status = self._status, None
        if status is not None:
            status.stop()
            self._line(f"{self._text} ({self._clock() - self._since:.1f} s)")

    def _line(self, text: str) -> None:
        try:
            if self._console is None:
                self._stream.write(text + "\n")
                self._stream.flush()
            else:
                self._console.print(text, soft_wrap=True)
        except OSError:
            # Nobody reads it any more, or the log's disk is full: no reason to end an hour's bake.
            self._console, self._stream = None, Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - to the end of the process


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a plain-text table: numbers to the right, floats with two digits, None as a dash."""
    cells = [[_cell(value) for value in row] for row in rows]
    right = [bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(columns))]
    widths = [max(len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    return [
        "  ".join(text.rjust(width) if to_right else text.ljust(width) for text, width, to_right in zip(line, widths, right, strict=True)).rstrip()
        for line in [list(columns), ["-" * width for width in widths], *cells]
    ]


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
