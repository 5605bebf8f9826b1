"""Whether a warm start loaded every artifact that was baked: a file that is present and never loaded is the failure that baker exists for."""

from __future__ import annotations

from fnmatch import fnmatchcase

from baker.inside.finding import Finding
from baker.inside.job import JobResult
from baker.inside.manifest import CacheSet

NAMED = 4


def expected(cache_set: CacheSet) -> list[str]:
    """`<kind>/<path>` of every file that the strategy says must be loaded: one a rank for vLLM's AOT artifacts."""
    patterns = [str(pattern) for pattern in cache_set.strategy.get("load_files") or []]
    paths = [f"{kind.name}/{file.path}" for kind in cache_set.kinds for file in kind.files]
    return [path for path in paths if any(fnmatchcase(path, pattern) for pattern in patterns)]


def findings(name: str, result: JobResult, cache_set: CacheSet) -> list[Finding]:
    """A hard finding when the runtime never said that it loads its artifact, and one when an artifact (of a rank) was not among those it named."""
    wanted = cache_set.strategy.get("load_lines") or []
    if not wanted:
        return []
    lines = [line.text for line in result.lines if line.name in wanted]
    if not lines:
        text = f"{name}: the runtime never said that it loaded its artifact"
        return [Finding("proof-no-load-line", "hard", "", text, "no line", wanted, "read the log")]
    files = expected(cache_set)
    missing = [path for path in files if not any(f"/live/{path}" in line for line in lines)]
    if not missing:
        return []
    text = f"{name}: baked artifacts that no rank loaded: {', '.join(missing[:NAMED])}"
    remedy = "the log says which ranks started; an artifact that is never loaded is of another configuration: bake again from an empty work directory"
    return [Finding("proof-not-loaded", "hard", "vllm", text, f"{len(files) - len(missing)} of {len(files)} loaded", "all", remedy)]
