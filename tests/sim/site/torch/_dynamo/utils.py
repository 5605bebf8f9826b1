"""Simulated: the counters that Inductor and AOTAutograd keep."""

from collections import Counter, defaultdict

counters: defaultdict = defaultdict(Counter)
