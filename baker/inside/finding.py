"""A finding: what does not fit, both values, and what to do about it. Codes are stable and listed in docs/artifact-spec.md."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict


@dataclass(frozen=True)
class Finding:
    """`severity` is "hard" (the kind stays out of the server's sight) or "soft" (shown, and said); kind "" is the whole image."""

    code: str
    severity: str
    kind: str
    message: str
    found: Any = None
    expected: Any = None
    remedy: str = ""

    def document(self) -> Dict[str, Any]:
        """The finding as a JSON object."""
        return asdict(self)

    def line(self) -> str:
        """One line for people: `hard inductor file-damaged: … (got …, expected …): remedy`."""
        text = "%s %s %s: %s" % (self.severity, self.kind or "image", self.code, self.message)
        if self.found is not None or self.expected is not None:
            text += " (got %s, expected %s)" % (self.found, self.expected)
        return text + (": " + self.remedy if self.remedy else "")
