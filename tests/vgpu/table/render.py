"""The table as JSON and as Markdown. Paths of the machine that played it are replaced."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.vgpu.table.judge import again
from tests.vgpu.table.rows import Row, by_name

WORDS = {"use": "use", "cold": "cold"}


def scrub(text: str, names: Mapping[str, str]) -> str:
    """Replace directories of this machine by their names, longest first."""
    for path, name in sorted(names.items(), key=lambda pair: -len(pair[0])):
        text = re.sub(rf"(?<![\w./-]){re.escape(path)}(?![\w-])", name.replace("\\", r"\\"), text)
    return text


def document(header: Mapping[str, Any], played: Sequence[tuple[Row, Mapping[str, Any], Sequence[Any]]]) -> dict[str, Any]:
    """The whole table: a header (what, versions, date) and the rows."""
    rows = []
    for row, numbers, kinds in played:
        found = [judged.document() for judged in kinds]
        rows.append({"name": row.name, "why": row.why, **numbers, "kinds": found, "agrees": all(judged.agrees for judged in kinds)})
    return {**header, "disagreements": [row["name"] for row in rows if not row["agrees"]], "rows": rows}


def rows_of(out: Path) -> list[Mapping[str, Any]]:
    """Rows of an earlier run of the same evidence file; [] when there is none."""
    path = out.with_suffix(".json")
    return list(json.loads(path.read_text())["rows"]) if path.is_file() else []


def anew(row: Mapping[str, Any]) -> dict[str, Any]:
    """A stored row, judged by the reasons that are written down now."""
    kinds = [again(by_name(row["name"]), kind).document() for kind in row["kinds"]]
    return {**row, "kinds": kinds, "agrees": all(kind["agrees"] for kind in kinds)}


def merged(table: Mapping[str, Any], kept: Sequence[Mapping[str, Any]], order: Sequence[str]) -> dict[str, Any]:
    """The table with the rows of an earlier run that were not played again, in the order of the rows' file."""
    new = {row["name"]: row for row in table["rows"]}
    rows = {row["name"]: anew(row) for row in kept if row["name"] in order} | new
    found = [rows[name] for name in order if name in rows]
    return {**table, "rows": found, "disagreements": [row["name"] for row in found if not row["agrees"]]}


def _cell(judged: Mapping[str, Any]) -> str:
    def one(outcome: Mapping[str, Any]) -> str:
        return outcome["what"] + (f" (+{outcome['new']})" if outcome["new"] and outcome["what"] != "hit" else "")

    mark = "" if judged["agrees"] else " **!**"
    return f"{WORDS[judged['said']]}: {one(judged['done'])} / {one(judged['forced'])}{mark}"


def markdown(table: Mapping[str, Any]) -> str:
    """`said: outcome through start / outcome by force`, a cell a kind; notes and reasons below."""
    kinds = list(dict.fromkeys(kind["kind"] for row in table["rows"] for kind in row["kinds"]))
    lines = [f"# Truth table: {table['title']}", "", table["first_line"], ""]
    lines += [f"- {name}: {value}" for name, value in table["versions"].items()]
    lines += [
        "",
        "Each cell: what `start` said of the kind (use or cold); what the real code then did; what it did when a test filled live unchecked.",
        "hit: nothing new. partial: some of it was used, and more was added. (+n): n new files. **!**: a disagreement without a written reason.",
        "",
        "| row | what varies | start | " + " | ".join(kinds) + " |",
        "|---|---|---|" + "---|" * len(kinds),
    ]
    for row in table["rows"]:
        cells = {kind["kind"]: _cell(kind) for kind in row["kinds"]}
        lines.append(f"| {row['name']} | {row['why']} | {row['word']} | " + " | ".join(cells.get(kind, "") for kind in kinds) + " |")
    notes = [f"- {row['name']}, {kind['kind']}: {kind['note']}" for row in table["rows"] for kind in row["kinds"] if kind["note"]]
    lines += ["", "## Notes", "", *(notes or ["none"])]
    said = [f"- {row['name']}: {kind['kind']}: {', '.join(kind['codes'])}" for row in table["rows"] for kind in row["kinds"] if kind["codes"]]
    lines += ["", "## What start named", "", *(said or ["nothing"])]
    crashes = [f"- {row['name']}: {row['error']}" for row in table["rows"] if row.get("error")]
    lines += ["", "## Servers that did not get ready", "", *(crashes or ["none"]), ""]
    return "\n".join(lines)


def write(table: Mapping[str, Any], out: Path, names: Mapping[str, str]) -> None:
    """`<out>.json` and `<out>.md`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".json").write_text(scrub(json.dumps(table, indent=1) + "\n", names))
    out.with_suffix(".md").write_text(scrub(markdown(table), names))
