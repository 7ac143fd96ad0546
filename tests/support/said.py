"""What a command says on standard error, apart from its first words (which fast/test_first_words.py is about)."""

from __future__ import annotations

import re

FIRST_WORDS = re.compile(
    r"prebleexp: ([\d,]+ of [\d,]+ runs are in the cache, [\d,]+ to compute|compiling .*|composing .*)"
)


def after_first_words(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if not FIRST_WORDS.match(line))
