"""Token-id prompts of exact length, all different from the first token on, the same in every run."""

from __future__ import annotations

import random

from baker.errors import UsageError

LOW = 16  # below are special and byte tokens in the usual vocabularies
HIGH = 32_000  # enough ids; rare and added tokens of large vocabularies stay out


class Prompts:
    """A deterministic source of prompts over one vocabulary (size in tokens, ids that must not occur). Raises UsageError when none is left."""

    def __init__(self, vocabulary: int, special: frozenset[int] = frozenset()) -> None:
        # The last tenth of a vocabulary is where padding rows and added tokens sit.
        self._ids = [i for i in range(LOW, min(HIGH, vocabulary * 9 // 10)) if i not in special]
        self._count = 0
        if not self._ids:
            raise UsageError(
                "no token is left to make prompts of",
                found=f"vocabulary of {vocabulary}, {len(special)} of them special",
                expected=f"ordinary tokens from {LOW} on",
                remedy="look at bos_token_id, eos_token_id and pad_token_id in config.json",
            )

    def next(self, length: int) -> list[int]:
        """The next prompt of `length` tokens; its first token (for more prompts than ids: its first two) was in no earlier prompt's place."""
        number, self._count = self._count, self._count + 1
        generator = random.Random(number)
        prompt = [generator.choice(self._ids) for _ in range(length)]
        prompt[0] = self._ids[number % len(self._ids)]
        if length > 1:
            prompt[1] = self._ids[(number // len(self._ids)) % len(self._ids)]
        return prompt
