"""baker: bakes the JIT caches of an LLM server into image layers and proves that they hit. Shipped in the start zip: imports nothing."""

__version__ = "0.1.0"
