"""Judge one set: does each kind fit this machine, this command and this environment, and is it intact. Pure: everything observed is handed in."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Sequence, Tuple

from baker.inside.arguments import compare_arguments, compare_variables
from baker.inside.finding import Finding
from baker.inside.inventory import shown
from baker.inside.manifest import CacheSet, Kind
from baker.inside.pristine import Survey
from baker.inside.rows import judge

NAMED = 8  # damaged files of a kind that get a finding each; the status file lists all
QUARANTINE = "entry-damaged"  # hard for policy strict, and yet the kind is shown without those entries
REBUILD = "pull the image again by its digest; if it persists, build it again"


class Damage(NamedTuple):
    """One path that is not as the manifest says."""

    code: str
    path: str
    found: str
    expected: str


@dataclass(frozen=True)
class Verdict:
    """What start may show. `hidden`: kind -> codes; `elsewhere`: kinds whose variable the pod points to another directory."""

    set_name: str
    kinds: Tuple[str, ...]
    findings: Tuple[Finding, ...]
    damage: Mapping[str, Tuple[Damage, ...]]
    quarantined: Mapping[str, FrozenSet[str]] = field(default_factory=dict)  # kind -> damaged entries that are left out of live

    @property
    def hidden(self) -> Dict[str, List[str]]:
        """Kinds that stay out of the server's sight, with the codes of their hard findings (those of the whole image hide every kind)."""
        hidden: Dict[str, List[str]] = {}
        hard = [f for f in self.findings if f.severity == "hard" and f.code != QUARANTINE]
        for name in self.kinds:
            codes = sorted({f.code for f in hard if f.kind in ("", name)})
            if codes:
                hidden[name] = codes
        return hidden

    @property
    def elsewhere(self) -> List[str]:
        """Kinds that the server will not look for here."""
        return sorted({f.kind for f in self.findings if f.code == "variable-elsewhere"})

    @property
    def shown(self) -> List[str]:
        """Kinds that the server may see."""
        return [name for name in self.kinds if name not in self.hidden]

    @property
    def hard(self) -> List[Finding]:
        """The hard findings."""
        return [f for f in self.findings if f.severity == "hard"]

    @property
    def word(self) -> str:
        """The state: "compatible" when every kind is shown and looked for, "cold" when none is, else "partly"."""
        useful = [name for name in self.shown if name not in self.elsewhere]
        return "cold" if not useful else "compatible" if len(useful) == len(self.kinds) and not self.hard else "partly"

    def plus(self, findings: Sequence[Finding]) -> Verdict:
        """The verdict with more findings."""
        return Verdict(self.set_name, self.kinds, (*self.findings, *findings), self.damage, self.quarantined)


def compare_files(kind: Kind, look: Survey, level: str) -> List[Damage]:
    """Every path of a kind that differs from the manifest, sorted: missing, extra, of another type, size or hash, or unreadable."""
    damage: List[Damage] = []
    listed = {file.path: file for file in kind.files}
    linked = _linked_directories(listed, look)
    for path, file in listed.items():
        entry = look.entries.get(path)
        if entry is None:
            if not any(path.startswith(link + "/") for link in linked):
                damage.append(Damage("file-missing", path, "nothing", "%d bytes" % file.size))
        elif entry.type != "file":
            found = "a link to %s" % shown(entry.value or "") if entry.type == "link" else "neither file, directory nor link"
            damage.append(Damage("file-type", path, found, "a regular file"))
        elif entry.size != file.size:
            damage.append(Damage("file-size", path, "%d bytes" % entry.size, "%d bytes" % file.size))
        elif path in look.unreadable:
            damage.append(Damage("file-unreadable", path, look.unreadable[path], "a readable file"))
        elif entry.value is not None and entry.value != file.sha256:
            damage.append(Damage("file-damaged", path, "sha256 " + entry.value, "sha256 " + file.sha256))
        elif entry.value is None and (level == "full" or (level == "code" and file.role != "inert")):
            damage.append(Damage("file-unreadable", path, "not hashed", "sha256 " + file.sha256))
    damage += [Damage("file-type", path, "a link to %s" % shown(look.entries[path].value or ""), "a directory") for path in linked]
    damage += [Damage("file-extra", path, look.entries[path].type, "nothing") for path in look.entries.keys() - listed.keys() - set(linked)]
    return sorted(damage, key=lambda d: (d.path, d.code))


def _linked_directories(listed: Mapping[str, Any], look: Survey) -> List[str]:
    """Links that stand where the manifest has a directory."""
    parents = {path[:i] for path in listed for i, char in enumerate(path) if char == "/"}
    return sorted(path for path, entry in look.entries.items() if entry.type == "link" and path in parents)


def _file_findings(kind: Kind, look: Survey, damage: Sequence[Damage]) -> List[Finding]:
    gone = look.error or any(d.code == "file-missing" for d in damage)
    if look.mount and gone:
        message = "the baked directory is hidden by the mount at %s" % shown(look.mount)
        remedy = "mount the volume elsewhere; only live may be mounted over"
        return [Finding("hidden-by-mount", "hard", kind.name, message, "%d of %d files" % (_present(kind, look), len(kind.files)), "all", remedy)]
    if look.error:
        return [Finding("kind-unreadable", "hard", kind.name, shown(look.error), None, None, REBUILD)]
    findings = [Finding(d.code, "hard", kind.name, shown(d.path), d.found, d.expected, REBUILD) for d in damage[:NAMED]]
    if len(damage) > NAMED:
        text = "%d more paths differ: the status file lists them" % (len(damage) - NAMED)
        findings.append(Finding("files-differ", "hard", kind.name, text, "%d differ" % len(damage), "none", REBUILD))
    return findings


def entry_of(path: str, depth: int) -> str:
    """The entry that a path belongs to: its first `depth` components."""
    return "/".join(path.split("/")[:depth])


def entries_lost(kind: Kind, look: Survey, damage: Sequence[Damage]) -> FrozenSet[str]:
    """Damaged entries that can be left out while the kind is shown; empty when there are none, or when the kind as a whole must stay hidden."""
    if not kind.entry_depth or not damage or look.error or look.mount:
        return frozenset()
    lost = frozenset(entry_of(d.path, kind.entry_depth) for d in damage)
    whole = {entry_of(file.path, kind.entry_depth) for file in kind.files}
    return lost if lost < whole else frozenset()  # nothing left, or files that belong to no entry: the kind is judged as one


def _left_out(kind: Kind, lost: FrozenSet[str], damage: Sequence[Damage]) -> Finding:
    first = damage[0]
    total = len({entry_of(file.path, kind.entry_depth) for file in kind.files})
    message = "%d of %d entries are damaged and left out: %s%s" % (len(lost), total, shown(first.path), " …" if len(damage) > 1 else "")
    return Finding(QUARANTINE, "hard", kind.name, message, first.found, first.expected, "the server compiles them again; " + REBUILD)


def _present(kind: Kind, look: Survey) -> int:
    return sum(1 for file in kind.files if file.path in look.entries)


def _form(kind: Kind, twice: bool) -> List[Finding]:
    """What is wrong with the kind's own entry in the manifest: names and variables that cannot be used safely."""
    problems = []
    if twice:
        problems.append("its name stands twice")
    if "/" in kind.name or kind.name.startswith("."):
        problems.append("its name is not a plain directory name")
    try:
        for text in (kind.name, *kind.directories, *kind.variables.values()):
            os.fsencode(text)
    except ValueError:
        problems.append("a path cannot be encoded")
    if any("\0" in value for value in kind.variables.values()) or not all(re.match(r"[A-Za-z_][A-Za-z0-9_]*\Z", n) for n in kind.variables):
        problems.append("a variable cannot be set")
    return [Finding("kind-malformed", "hard", kind.name, text, None, None, "build the image again") for text in problems]


def _elsewhere(kind: Kind, env: Mapping[str, str]) -> List[Finding]:
    """Soft findings for cache variables that the pod sets to something else: the server looks there, and start leaves it."""
    message = "the environment points %s elsewhere: the server will not find this cache"
    return [
        Finding("variable-elsewhere", "soft", kind.name, message % name, shown(env[name]), shown(value), "unset %s in the pod" % name)
        for name, value in sorted(kind.variables.items())
        if name in env and env[name] != value
    ]


def check(
    cache_set: CacheSet, facts: Mapping[str, Any], surveys: Mapping[str, Survey], argv: Sequence[str], env: Mapping[str, str], level: str = "code"
) -> Verdict:
    """Judge every kind of `cache_set`.

    `facts` as from probe.observe, `surveys` as from pristine.survey at the same `level`, `argv` the server's command (program first; empty = not
    compared), `env` its environment. Raises nothing for any parsed manifest.
    """
    findings: List[Finding] = []
    damaged: Dict[str, Tuple[Damage, ...]] = {}
    quarantined: Dict[str, FrozenSet[str]] = {}
    names = [kind.name for kind in cache_set.kinds]
    for kind in cache_set.kinds:
        findings += _form(kind, names.count(kind.name) > 1)
        if not kind.rows:
            findings.append(
                Finding("no-rows", "hard", kind.name, "no requirement is recorded: nothing says where it is valid", 0, ">= 1", "bake again")
            )
        findings += [finding for finding in (judge(row, kind.name, facts) for row in kind.rows) if finding]
        look = surveys.get(kind.name, Survey({}, {}, "not looked at"))
        damage = compare_files(kind, look, level) if not look.error else []
        lost = entries_lost(kind, look, damage)
        if lost:
            quarantined[kind.name] = lost
            findings.append(_left_out(kind, lost, damage))
        else:
            findings += _file_findings(kind, look, damage)
        findings += _elsewhere(kind, env)
        if damage:
            damaged[kind.name] = tuple(damage)
    findings += _command(cache_set, argv, env, frozenset(names))
    return Verdict(cache_set.name, tuple(dict.fromkeys(names)), tuple(findings), damaged, quarantined)


def _command(cache_set: CacheSet, argv: Sequence[str], env: Mapping[str, str], names: FrozenSet[str]) -> List[Finding]:
    """Differences of the command and the variables; those on kinds that this set does not hold are dropped."""
    own = [name for kind in cache_set.kinds for name in kind.variables]
    found = compare_arguments(argv, cache_set.serve, cache_set.neutral) if argv else []
    found += compare_variables(env, cache_set.serve, cache_set.neutral, own)
    return [finding for finding in found if finding.kind in names or not finding.kind]
