"""Pick the set of a manifest that fits this machine and this command best."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from baker.inside.arguments import compare_arguments
from baker.inside.finding import Finding
from baker.inside.manifest import CacheSet, Manifest
from baker.inside.rows import text


class Choice(NamedTuple):
    """The chosen set, or None with the reasons in `findings`."""

    cache_set: Optional[CacheSet]
    findings: Tuple[Finding, ...]


def architecture(facts: Mapping[str, Any]) -> str:
    """`sm_90` of the fact gpu.cc "9.0"; "" without a GPU, or with GPUs of several capabilities."""
    capability = facts.get("gpu.cc")
    return "sm_" + capability.replace(".", "") if isinstance(capability, str) else ""


def wanted_facts(manifest: Manifest) -> List[str]:
    """The facts that choosing needs: none for an image with CPU sets only, so that no driver is touched there."""
    targets = [cache_set.target.get("arch") for cache_set in manifest.sets]
    return ["gpu.count", "gpu.name", "gpu.cc", "gpu.error"] if any(arch != "cpu" for arch in targets) else []


def _score(cache_set: CacheSet, facts: Mapping[str, Any], argv: Sequence[str]) -> Optional[Tuple[int, int, int]]:
    """How well a set fits, larger is better: architecture, product, fewest differing arguments. None: another architecture."""
    arch, product = cache_set.target.get("arch"), cache_set.target.get("product")
    here = architecture(facts)
    if arch != "cpu" and arch != here:
        return None
    same_product = int(bool(product) and product == facts.get("gpu.name"))
    differing = sum(1 for f in compare_arguments(argv, cache_set.serve, cache_set.neutral) if f.severity == "hard") if argv else 0
    return int(arch != "cpu"), same_product, -differing


def pick_set(manifest: Manifest, facts: Mapping[str, Any], argv: Sequence[str]) -> Choice:
    """The best set: GPU before CPU, the same product before another of its architecture, then the fewest differing arguments, then manifest order.

    A CPU set fits every machine (its rows decide); its processor architecture is a row. When none fits, one finding a set says why.
    """
    best: Optional[CacheSet] = None
    best_score: Optional[Tuple[int, int, int]] = None
    for cache_set in manifest.sets:
        score = _score(cache_set, facts, argv)
        if score is not None and (best_score is None or score > best_score):
            best, best_score = cache_set, score
    if best is not None:
        return Choice(best, ())
    here = "%s %s" % (architecture(facts) or "no usable GPU", facts.get("gpu.name") or facts.get("gpu.error") or "")
    also = ", or build this image for %s too" % architecture(facts) if architecture(facts) else ""
    findings = []
    for cache_set in manifest.sets:
        arch = text(cache_set.target.get("arch", "?"))
        message = "set %s is for another machine" % text(cache_set.name)
        findings.append(Finding("no-set-fits", "hard", "", message, here.strip(), arch, "run on %s%s" % (arch, also)))
    return Choice(None, tuple(findings))
