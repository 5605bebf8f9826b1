"""Would an image be compatible here: the judgement that `start` makes, from outside of the container and without its files on disk.

The bytes are not looked at: `inspect` recomputes every digest. Facts that belong to the image (versions, interpreter, compilers, C library) are those
of its builder where the image has a base, for the server will run inside it; a scratch image runs in this host's environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baker.errors import UsageError
from baker.inside import decide, probe
from baker.inside.arguments import masked
from baker.inside.check import Verdict
from baker.inside.inventory import Entry
from baker.inside.manifest import CacheSet, Manifest
from baker.inside.pristine import Survey

OF_THE_IMAGE = ("pkg.", "python.", "tool.", "libc")
LEVEL = "sizes"  # of files that are taken as listed


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict, the set that was judged (None when none fits), and the facts that it rests on."""

    verdict: Verdict
    cache_set: CacheSet | None
    facts: Mapping[str, Any]

    def document(self) -> dict[str, Any]:
        """As JSON object; values of secret-looking variables are masked."""
        facts = {n: masked(n, str(v)) if n.startswith("env.") and v is not None else v for n, v in self.facts.items()}
        hidden = self.verdict.hidden
        return {
            "word": self.verdict.word,
            "set": self.verdict.set_name,
            "kinds": {name: {"state": state(self.verdict, name), "codes": hidden.get(name, [])} for name in self.verdict.kinds},
            "findings": [finding.document() for finding in self.verdict.findings],
            "facts": facts,
        }


def state(verdict: Verdict, kind: str) -> str:
    """ "shown", "hidden", or "elsewhere"."""
    return "hidden" if kind in verdict.hidden else "elsewhere" if kind in verdict.elsewhere else "shown"


def as_listed(cache_set: CacheSet) -> Mapping[str, Survey]:
    """The survey of a pristine tree that is as the manifest says."""
    return {kind.name: Survey({file.path: Entry("file", file.size, file.sha256) for file in kind.files}, {}) for kind in cache_set.kinds}


def scratch(manifest: Manifest) -> bool:
    """Whether the image has no base: its interpreter and packages are the host's."""
    base = manifest.plan.get("base")
    return not (isinstance(base, str) and base.startswith("sha256:"))


def host_facts(manifest: Manifest, env: Mapping[str, str]) -> dict[str, Any]:
    """What this host is, for the rows of the image."""
    python, dist_info = decide.interpreter(manifest)
    return probe.observe(decide.names(manifest, env), python, dist_info, env)


def file_facts(path: Path, manifest: Manifest, env: Mapping[str, str]) -> dict[str, Any]:
    """Facts of another node: a status file of `start`, the output of `start --check`, or a flat object. Raises UsageError.

    Facts that the file does not tell are unknown, variables apart: those are the image's own.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        document, why = None, str(error)
    else:
        why = f"a JSON {type(document).__name__}"
    facts = document.get("facts", document) if isinstance(document, dict) else None
    if not isinstance(facts, dict):
        raise UsageError(
            f"{path} holds no facts",
            code="bad-facts",
            found=why,
            expected="the status file of `start`, the output of `start --check`, or an object of facts such as gpu.cc",
            remedy="run `start --check` on that node and pass what it prints",
        )
    unknown = facts.get("unknown")
    told = dict(unknown) if isinstance(unknown, dict) else {}
    found: dict[str, Any] = {**facts, "unknown": told}
    for name in decide.names(manifest, env):
        if name not in facts and name not in told:
            if name.startswith("env."):
                found[name] = env.get(name[4:])
            else:
                found[name], told[name] = None, f"{path} does not tell"
    return found


def judge(manifest: Manifest, facts: Mapping[str, Any], command: Sequence[str], env: Mapping[str, str], set_name: str = "") -> Judged:
    """Judge the image, or one set of it, for a machine with these facts and a server with this command and environment."""
    chosen = [cache_set for cache_set in manifest.sets if set_name in ("", cache_set.name)]
    if not chosen:
        names = ", ".join(cache_set.name for cache_set in manifest.sets)
        raise UsageError(f"no set {set_name!r} in this image", code="no-such-set", found=set_name, expected=names, remedy="pass one of them")
    view = Manifest(manifest.root, manifest.plan, tuple(chosen), manifest.raw)
    if not scratch(manifest):
        own = {name: value for name, value in chosen[0].builder.items() if name.startswith(OF_THE_IMAGE)}
        unknown = {name: reason for name, reason in facts.get("unknown", {}).items() if name not in own}
        facts = {**facts, **own, "unknown": unknown}
    verdict, cache_set = decide.judge(view, facts, command, env, LEVEL, as_listed)
    return Judged(verdict, cache_set, facts)


def command_of(cache_set: CacheSet, words: Sequence[str]) -> list[str]:
    """The server's command: as recorded, or the recorded program with other arguments (what a container's CMD replaces)."""
    return [*cache_set.serve["program"], *(words or cache_set.serve["argv"])]
