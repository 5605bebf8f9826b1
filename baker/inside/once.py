"""The driver for a program that ends by itself: no port, no requests; it has done its work when it exits with 0."""

from __future__ import annotations

import time

from baker.inside.driver import SAMPLE_S, TICK_S, Over, Run

FAST_S = 1.0  # a program may be over before the usual sample comes: at first the tree is walked at every look


class Once(Run):
    """One run of a program, to its end. `ready_s` is how long it took."""

    def _until_ready(self) -> None:
        """There is nothing to wait for but the end."""

    def _play(self) -> None:
        while self._exit_code() is None:
            self.signals.check()
            now = time.monotonic()
            if now - self._sampled >= (TICK_S if now - self.began < FAST_S else SAMPLE_S):
                self._sampled = now
                self.census.sample()
            if now - self.began > self.job.deadline_s:
                raise Over("deadline", "the program took longer than %g s" % self.job.deadline_s)
            time.sleep(TICK_S / 5)
        if self._exit_code() != 0:
            raise Over("died", self._why_died())
        self.ready_s = round(time.monotonic() - self.began, 3)

    def _close(self) -> None:
        super()._close()
        self.census.last = sorted(self.census.argv)  # nobody is left at the end: everybody who was seen counts
