"""Code that runs inside containers: Python 3.9+ standard library only, under `python3 -I -S`, imports nothing of baker above it."""
