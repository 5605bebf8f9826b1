"""QuACK's kernels (`QUACK_CACHE_DIR`): objects by fingerprint. Read in QuACK 0.6.5, not run: unproven, only made trees have been packed."""

from __future__ import annotations

from collections.abc import Mapping

from baker.caches.cutedsl import ObjectCache


class Quack(ObjectCache):
    """Kind `quack`."""

    name = "quack"
    title = "QuACK: CuTe DSL kernels as object files (unproven)"
    stability = 30
    packages = ("pkg.quack-kernels",)
    variables = ("QUACK_ARCH", "QUACK_CACHE_ENABLED")

    def pins(self, live: str) -> Mapping[str, str]:
        """`QUACK_CACHE_DIR`; its default is below the temporary directory, named by user."""
        return {"QUACK_CACHE_DIR": f"{live}/{self.name}"}
