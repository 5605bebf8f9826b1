"""Simulated."""
