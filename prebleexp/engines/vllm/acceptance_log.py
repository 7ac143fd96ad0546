"""How often drafts were accepted, by position, as vLLM's server logs it (vllm/v1/spec_decode/metrics.py)."""

from __future__ import annotations

import re
from pathlib import Path

from prebleexp.errors import InvalidInput

LINE = re.compile(r"SpecDecoding metrics:.*?Drafted: (\d+) tokens, Per-position acceptance rate: ([\d., ]+?), Avg")


def rates(path: str) -> tuple[float, ...]:
    """Of all lines, by how many drafts each is of: the share of steps in which a draft was accepted, by position.

    Raises InvalidInput for a file that cannot be read, or that has no such line, or lines of several numbers of drafts.
    """
    here = f"engine.speculative_config.acceptance_rate={path} is not valid"
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            lines = [found for line in file if (found := LINE.search(line)) is not None]
    except OSError as error:
        raise InvalidInput(f"{here}; it must be numbers, or a log of vLLM's server: {error.strerror}") from None
    if not lines:
        raise InvalidInput(
            f"{here}; it has no line with 'SpecDecoding metrics', which vLLM's server writes with drafts"
        )
    each = [[float(one) for one in found[2].split(",")] for found in lines]
    if len(lengths := {len(one) for one in each}) > 1:
        raise InvalidInput(f"{here}; it is of {' and '.join(map(str, sorted(lengths)))} drafts a step: cut it")
    drafted = [int(found[1]) for found in lines]
    whole = max(1, sum(drafted))
    return tuple(sum(rate * of for rate, of in zip(by, drafted, strict=True)) / whole for by in zip(*each, strict=True))
