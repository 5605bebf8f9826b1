"""How long the probe takes on a machine without a GPU: every fact, in a process of its own as in a container. Aim: median of 10 under 100 ms.

Usage: python bench/probe.py [--runs N]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from baker.pack.zips import start_zip

AIM_S = 0.1
CODE = """
import sys; sys.path.insert(0, sys.argv[1])
from baker.inside import probe
names = [*probe.SIMPLE, *probe.GPU, "pkg.torch", "env.HOME", "lib.libgomp.so.1"]
facts = probe.observe(names)
assert facts["cpu.arch"], facts
"""


def main() -> int:
    """Measure and print; exit 1 above the aim."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    given = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".zip") as zipped:
        zipped.write(start_zip())
        zipped.flush()
        seconds: dict[str, list[float]] = {"nothing": [], "probe": []}
        for _ in range(given.runs + 1):
            for name, code in (("nothing", "pass"), ("probe", CODE)):
                begin = time.perf_counter()
                subprocess.run([sys.executable, "-I", "-S", "-c", code, zipped.name], check=True)
                seconds[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    probe, nothing = (medians[name] * 1000 for name in ("probe", "nothing"))
    print(f"every fact: {probe:.0f} ms, the interpreter alone {nothing:.0f} ms (median of {given.runs}, aim {AIM_S * 1000:.0f})")
    return 0 if medians["probe"] <= AIM_S else 1


if __name__ == "__main__":
    sys.exit(main())
