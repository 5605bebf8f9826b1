"""Simulated vLLM."""

from vllm import version

__version__ = version.VERSION
