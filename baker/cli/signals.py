"""INT, TERM and HUP become an exception in the main thread, so that every `finally` on the way out ends what it started."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from baker.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A second Ctrl-C must not cut the clean-up short: until then (the driver's grace of 10 s, and some) it is only noted.
PATIENCE_S = 15.0


@contextmanager
def handled() -> Iterator[None]:
    """Raise Interrupted (exit 130, 143 or 129) on INT, TERM or HUP while inside; the handlers of before are put back. nohup keeps its meaning."""
    first: list[float] = []

    def interrupt(signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if first and now - first[0] < PATIENCE_S:
            return
        first[:] = [now]
        with suppress(OSError):  # stderr may be closed, and the signal must not get lost over it
            os.write(2, f"baker: {signal.Signals(signum).name}: ending what was started, this may take some seconds\n".encode())
        raise Interrupted(signum, f"ended by {signal.Signals(signum).name}")

    hung_up_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    before = {number: signal.signal(number, interrupt) for number in SIGNALS if number != signal.SIGHUP or not hung_up_ignored}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
