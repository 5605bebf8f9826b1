"""FlashAttention's CuTe kernels (`FLASH_ATTENTION_CUTE_DSL_CACHE_DIR`): objects by fingerprint; off unless switched on, at bake and at serve time
alike.

Read in vLLM 0.33 (vllm_flash_attn/cute/cache_utils.py), not run: unproven, only made trees have been packed.
"""

from __future__ import annotations

from collections.abc import Mapping

from baker.caches.cutedsl import ObjectCache


class FlashAttention(ObjectCache):
    """Kind `flash_attention`."""

    name = "flash_attention"
    title = "FlashAttention: CuTe DSL kernels as object files (unproven)"
    stability = 30
    packages = ("pkg.vllm", "pkg.flash-attn", "pkg.flash-attn-4")

    def pins(self, live: str) -> Mapping[str, str]:
        """The directory, and the switch: without it every process compiles again and keeps the result in memory only."""
        return {"FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": f"{live}/{self.name}", "FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1"}
