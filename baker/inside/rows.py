"""Requirement rows against facts: operators, numeric comparison of versions, and what counts as unknown."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from baker.inside.arguments import masked
from baker.inside.finding import Finding
from baker.inside.manifest import Row

WIDTH = 200  # characters of a value in a message


class MalformedError(ValueError):
    """A row whose operator cannot be applied to its value; the text says why."""


def text(value: Any) -> str:
    """A value for people, on one line, bounded."""
    try:
        shown = value if isinstance(value, str) and value.isprintable() else ascii(value)
    except RecursionError:
        return "(nested too deep)"
    return shown if len(shown) <= WIDTH else shown[:WIDTH] + "…"


def version(value: Any) -> Tuple[int, ...]:
    """Dotted numbers of a version, local part (`+cpu`) left out: "580.95.05" -> (580, 95, 5). Raises MalformedError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = repr(value)
    match = re.match(r"v?(\d+(?:\.\d+)*)", value) if isinstance(value, str) else None
    if not match:
        raise MalformedError("%s is not a version" % text(value))
    parts = [int(part[:18]) for part in match.group(1).split(".")]  # 18 digits: no version has more, and int() refuses thousands
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()  # 13.0 and 13 are one version
    return tuple(parts)


def _listed(value: Any) -> List[Any]:
    if not isinstance(value, list):
        raise MalformedError("the row's value is %s, not a list" % type(value).__name__)
    return value


def _prefix(fact: Any, value: Any) -> bool:
    if not isinstance(value, str):
        raise MalformedError("the row's value is %s, not a string" % type(value).__name__)
    return isinstance(fact, str) and fact.startswith(value)


OPERATORS: Dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda fact, value: type(fact) is type(value) and fact == value,
    "ge": lambda fact, value: fact is not None and version(fact) >= version(value),
    "le": lambda fact, value: fact is not None and version(fact) <= version(value),
    "in": lambda fact, value: any(type(fact) is type(item) and fact == item for item in _listed(value)),
    "prefix": _prefix,
    "superset": lambda fact, value: isinstance(fact, list) and all(item in fact for item in _listed(value)),
    "present": lambda fact, value: fact not in (None, "", []),
}


def _expected(row: Row, fact: Any) -> Tuple[str, str]:
    """(found, expected) for people."""
    if row.op == "superset" and isinstance(fact, list):
        missing = [item for item in row.value if item not in fact]
        return "without %s" % text(" ".join(map(str, missing))), "all %d of the builder's" % len(row.value)
    words = {"eq": "", "ge": "at least ", "le": "at most ", "in": "one of ", "prefix": "beginning with ", "present": "present"}
    if row.fact.startswith("env."):
        fact = fact if fact is None else masked(row.fact, str(fact))
        return text("absent" if fact is None else fact), words.get(row.op, "") + text(masked(row.fact, str(row.value)))
    return text("absent" if fact is None else fact), words.get(row.op, "") + ("" if row.op == "present" else text(row.value))


def judge(row: Row, kind: str, facts: Mapping[str, Any]) -> Optional[Finding]:
    """The finding of one row, or None when the fact meets it. A fact that cannot be told is a finding of the row's severity; raises nothing."""
    severity = row.severity if row.severity == "soft" else "hard"  # an unknown severity is taken as the strict one
    operator = OPERATORS.get(row.op)
    if operator is None:
        remedy = "start with the baker version that made the image"
        return Finding("unknown-operator", "hard", kind, "cannot judge %s" % text(row.fact), text(row.op), ", ".join(OPERATORS), remedy)
    unknown = facts.get("unknown", {})
    if row.fact not in facts or row.fact in unknown:
        reason = unknown.get(row.fact, "not observed")
        return Finding("unknown-fact", severity, kind, "%s cannot be told here" % text(row.fact), text(reason), _expected(row, None)[1], row.remedy)
    fact = facts[row.fact]
    try:
        if operator(fact, row.value):
            return None
        found, expected = _expected(row, fact)
    except MalformedError as error:
        return Finding("row-malformed", "hard", kind, "%s %s: %s" % (text(row.fact), row.op, error), text(fact), text(row.value), row.remedy)
    except RecursionError:
        return Finding("row-malformed", "hard", kind, "%s %s: nested too deep" % (text(row.fact), row.op), None, None, row.remedy)
    owner = " (%s)" % row.owner if row.owner else ""
    return Finding("fact-differs", severity, kind, "%s does not fit%s" % (text(row.fact), owner), found, expected, row.remedy)
