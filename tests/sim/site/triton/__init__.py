"""Simulated Triton."""

__version__ = "3.9.0"
