"""The server simulator: a fake installation of vLLM that the unmodified product runs against. See install.py, model.py, drive.py."""
