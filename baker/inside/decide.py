"""Read the image's manifest, observe the machine, and judge: everything that start knows before it touches live."""

from __future__ import annotations

import os
import stat
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from baker.inside import libcuda, mounts
from baker.inside import manifest as manifests
from baker.inside.check import Verdict, check
from baker.inside.choose import pick_set, wanted_facts
from baker.inside.finding import Finding
from baker.inside.pristine import Survey, survey
from baker.inside.probe import observe
from baker.inside.settings import Settings
from baker.inside.status import say

BOUND_BY = "BAKER_MANIFEST_DIGEST"
LIMIT = 1 << 30  # bytes of a manifest; 20,000 files make 4 MB


class Decision(NamedTuple):
    """The verdict and what it rests on; `manifest` and `cache_set` are None when there is none that may be trusted or that fits."""

    verdict: Verdict
    digest: str
    manifest: Optional[manifests.Manifest]
    cache_set: Optional[manifests.CacheSet]
    facts: Dict[str, Any]


def _nothing(findings: Sequence[Finding], digest: str = "") -> Decision:
    return Decision(Verdict("", (), tuple(findings), {}), digest, None, None, {})


def _image(code: str, message: str, found: Any, expected: Any, remedy: str) -> Finding:
    return Finding(code, "hard", "", message, found, expected, remedy)


def read_manifest(path: str) -> bytes:
    """The manifest's bytes; only a regular file is read. Raises OSError or ValueError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LIMIT:
            raise ValueError("not a regular file of at most %d bytes" % LIMIT)
        return file.read()


def _trusted(settings: Settings) -> Tuple[Optional[manifests.Manifest], str, List[Finding]]:
    """The manifest if it is the one that the image's configuration names, its digest, and why not."""
    path = os.path.join(settings.root, "manifest.json")
    again = "pull the image again by its digest; if it persists, build it again"
    try:
        data = read_manifest(path)
    except (OSError, ValueError) as error:
        return None, "", [_image("manifest-unreadable", path, str(error), "the image's manifest", again)]
    digest, named = manifests.digest(data), settings.env.get(BOUND_BY, "")
    if not named:
        remedy = "keep the image's variables; the value is the label and variable of the image's configuration"
        return (
            None,
            digest,
            [_image("manifest-unbound", "%s is not set: nothing binds the manifest to the image" % BOUND_BY, "unset", digest, remedy)],
        )
    if named != digest:
        return None, digest, [_image("manifest-mismatch", "the manifest is not the one that the image was made with", digest, named, again)]
    try:
        return manifests.parse(data), digest, []
    except manifests.ManifestError as error:
        return None, digest, [_image("manifest-damaged", str(error), None, None, again)]


def interpreter(manifest: manifests.Manifest) -> Tuple[str, List[str]]:
    """The server's interpreter and its dist-info directories: a set's serve {"python", "dist_info"}, the same in all sets of one base."""
    for serve in (cache_set.serve for cache_set in manifest.sets):
        python, dist_info = serve.get("python"), serve.get("dist_info")
        if isinstance(dist_info, list) and isinstance(python, str) and _is_path(python):
            return python, [item for item in dist_info if _is_path(item)]
    return "", []


def _is_path(value: Any) -> bool:
    """Whether the system could take it: a text without NUL that has bytes."""
    try:
        return isinstance(value, str) and b"\0" not in os.fsencode(value)
    except UnicodeError:
        return False


def _driver(manifest: manifests.Manifest, env: Mapping[str, str]) -> List[str]:
    """The driver's library, where the image has Triton link against it."""
    pinned = libcuda.VARIABLE in env or any(libcuda.VARIABLE in kind.variables for cache_set in manifest.sets for kind in cache_set.kinds)
    return ["cuda.library"] if pinned else []


def _progress(done: int, total: int) -> None:
    say("checked %d of %d files" % (done, total))


def names(manifest: manifests.Manifest, env: Mapping[str, str]) -> List[str]:
    """The facts that judging any set of this image needs."""
    rows = [row.fact for cache_set in manifest.sets for kind in cache_set.kinds for row in kind.rows]
    return wanted_facts(manifest) + _driver(manifest, env) + rows


Look = Callable[[manifests.CacheSet], Mapping[str, Survey]]


def judge(
    manifest: manifests.Manifest, facts: Mapping[str, Any], command: Sequence[str], env: Mapping[str, str], level: str, look: Look
) -> Tuple[Verdict, Optional[manifests.CacheSet]]:
    """Pick the set and judge it: the one place where `start`, `check` and `explain` decide. Raises nothing for any parsed manifest."""
    cache_set, reasons = pick_set(manifest, facts, command)
    found: List[Finding] = []
    if manifest.raw.get("unproven") is True:
        text = "nobody has shown that this image starts warm"
        found.append(Finding("unproven", "soft", "", text, "built with --no-prove", "a proof", "baker prove"))
    if cache_set is None:
        return Verdict("", (), (*found, *reasons), {}), None
    verdict = check(cache_set, facts, look(cache_set), command, env, level).plus(found)
    if cache_set.raw.get("virtual"):
        text = "set %s was baked on a stand-in driver: nothing that depends on time or values is proven" % ascii(cache_set.name)[1:-1]
        remedy = "baker prove on this GPU, or bake on one"
        verdict = verdict.plus([Finding("virtual-bake", "soft", "", text, "virtual", "a bake on the GPU", remedy)])
    if not command:
        verdict = verdict.plus([Finding("arguments-not-given", "soft", "", "no command was given, so none is compared")])
    return verdict, cache_set


def decide(settings: Settings) -> Decision:
    """Judge the image of `settings.root` for this machine and `settings.command`. Raises nothing for any content of the image."""
    manifest, digest, findings = _trusted(settings)
    if manifest is None:
        return _nothing(findings, digest)
    python, dist_info = interpreter(manifest)
    wanted = names(manifest, settings.env)
    facts = {**observe(wanted, python, dist_info, settings.env), **mounts.facts(settings.root, settings.env)}

    def look(cache_set: manifests.CacheSet) -> Mapping[str, Survey]:
        files = sum(len(kind.files) for kind in cache_set.kinds)
        say("checking %d files of set %s (%s, at most %g s)" % (files, ascii(cache_set.name)[1:-1], settings.level, settings.limit_s))
        return survey(settings.root, cache_set, settings.level, settings.limit_s, _progress)

    verdict, cache_set = judge(manifest, facts, settings.command, settings.env, settings.level, look)
    if cache_set is None:
        return Decision(verdict, digest, manifest, None, facts)
    return Decision(verdict.plus(mounts.findings(settings.root, cache_set, settings.env)), digest, manifest, cache_set, facts)
