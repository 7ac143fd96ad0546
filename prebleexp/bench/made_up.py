"""Files of made-up requests, with the statistics of traces that are not here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

BLOCK = 512
"""tokens a hash"""


def trace(path: Path) -> None:
    """Write as many requests and prompt tokens as Mooncake's conversation has, in its format."""
    rng = np.random.default_rng(0)
    lines, block = [], 0
    for i in range(12_031):
        length = int(rng.integers(1_000, 23_800))
        blocks = -(-length // BLOCK)
        ids = [0, *range(block + 1, block + blocks)] if blocks > 1 else [block + 1]
        block += blocks
        row = {"timestamp": i * 294, "input_length": length, "output_length": int(rng.integers(1, 700))}
        lines.append(json.dumps(row | {"hash_ids": ids}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def chats(path: Path) -> None:
    """Write 400 chats of two to nine turns, 30 s apart, that keep all that was said; `workload=agents` reads them."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(400):
        turns: list[list[float]] = []
        said = now = 0.0
        for turn in range(int(rng.integers(2, 10))):
            think, new, output = float(rng.exponential(30)) if turn else 0.0, *map(int, rng.integers(20, 400, 2))
            now += think + 1
            turns.append([now, think, int(said) + new, output, turn - 1, turns[-1][2] if turn else 0, 1.0, 1])
            said += new + output
        lines.append(json.dumps({"tool": 0, "system": 0, "turns": turns}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
