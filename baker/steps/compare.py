"""Cold against warm, as rows for a table: what was measured, in one place for the terminal and for `--json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# What stays cold whatever is cached, said beside the numbers (design 2, promise 7).
STAYS_COLD = "image pull, weights, imports and CUDA graph capture stay cold"
_PHASES = {
    "engine-init": "engine init (the runtime's own line)",
    "ready": "spawn to first completion",
    "torch-compile": "torch.compile",
    "dynamo": "Dynamo trace",
    "model-load": "model load",
    "weights": "weights load",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line: `cold` and `warm` in `unit`; ratio warm/cold, None where it means nothing."""

    what: str
    cold: float | None
    warm: float | None
    unit: str = "s"

    @property
    def ratio(self) -> float | None:
        """warm / cold."""
        return self.warm / self.cold if self.cold and self.warm is not None else None

    def document(self) -> dict[str, Any]:
        """As JSON object."""
        return {"what": self.what, "cold": self.cold, "warm": self.warm, "unit": self.unit, "ratio": self.ratio}


def rows(proof: Mapping[str, Any]) -> list[Row]:
    """Rows from a proof document: phases (cold n = 1, warm median), first request of each stage, files, events."""
    cold, warm, starts = proof["cold"], proof["warm"], proof["starts"]
    found = [Row(title, cold["phases_s"].get(name), warm["phases_s"].get(name)) for name, title in _PHASES.items() if name in cold["phases_s"]]
    bare = [start for start in starts if start["name"].startswith("bare") and "stages" in start]
    for stage in cold.get("order", cold["stages"]):
        times = cold["stages"][stage]
        first = sorted(start["stages"][stage]["first_ttft_s"] for start in bare if stage in start["stages"])
        found.append(Row(f"first TTFT, {stage}", times["first_ttft_s"], first[len(first) // 2] if first else None))
    new = [len(s["files"]["new"]) + len(s["files"]["changed"]) for s in starts if "files" in s]
    found.append(Row("new or changed files (most of any start)", proof["cold"].get("files"), max(new) if new else None, "files"))
    recorded = [s["event_count"] for s in starts if "event_count" in s]
    found.append(Row("compile events", cold.get("events"), recorded[0] if recorded else None, "events"))
    return found
