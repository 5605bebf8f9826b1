"""Simulated: the one knob that matters here."""


class _Compilation:
    listener = None


compilation = _Compilation()
