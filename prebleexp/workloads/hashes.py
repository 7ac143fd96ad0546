"""What prompts of a log share, by hashes of blocks of their tokens, as engines number them for their prefix caches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Longs
from prebleexp.workloads.blocks import LISTED, Prompts, fits, hashed
from prebleexp.workloads.columns import Columns, found, set_column
from prebleexp.workloads.rows import Rows

NAMES = ("hash_ids", "block_hashes", "prefix_hashes")
SIZES = tuple(2**power for power in range(15))
"""tokens a hash, of which one may be told by the numbers of hashes"""


class Hashes(NamedTuple):
    """Prompts of a segment a hash, or why there are none."""

    prompts: Prompts | None = None
    block: int = 0
    """tokens that a hash stands for"""
    says: str = ""
    doubt: str = ""


def are_asked_for(columns: Columns, block_tokens: int | None) -> bool:
    """Whether they say what prompts share even where messages or tokens' ids are there."""
    return "hashes" in columns or block_tokens is not None


def read(rows: Rows, columns: Columns, block_tokens: int | None, inputs: Longs, input_says: str) -> Hashes:
    """Prompts of (n,) `inputs` tokens. A hash stands for so many tokens and all before them; a prompt's incomplete last
    block may have one, in all rows or in none.

    How many tokens that is, is told by the numbers of hashes, if one power of two alone fits all rows. Raises
    InvalidInput, naming the file, where it is not known of hashes that were asked for, or where they do not fit; of
    others that is a doubt.
    """
    name = set_column(rows, columns, "hashes") or found(rows, NAMES)
    asked = are_asked_for(columns, block_tokens)
    if name is None:
        if asked:
            raise InvalidInput(
                f"{rows.path}: workload.block_tokens={block_tokens} is not valid; there is no field {NAMES[0]}: say "
                "which has the hashes, with workload.columns={hashes: …}"
            )
        return Hashes()
    counts = np.diff(rows.lists(name, LISTED)[0])
    if not counts.any():
        if asked:
            raise InvalidInput(f"{rows.path}: {name} is not valid; it has no list of hashes in any row")
        return Hashes(doubt=f"{name} has no list of hashes in any row, and is not used")
    block = block_tokens
    if block is None:
        could = _sizes(inputs, counts)
        if len(could) != 1:
            which = f"{', '.join(map(str, could))} would all fit" if could else "no power of two fits all rows"
            what = f"{name} does not say how many tokens a hash stands for ({which})"
            if asked:
                raise InvalidInput(f"{rows.path}: {what}; say workload.block_tokens=")
            return Hashes(doubt=f"{what}, and is not used; workload.block_tokens= says it")
        (block,) = could
    made = hashed(rows, input_says, inputs, name, block, partly=True)
    return Hashes(made.prompts, block, f"{name}, of {block} tokens{made.says}")


def _sizes(tokens: Longs, counts: Longs) -> list[int]:
    """Of blocks of which every row has as many hashes as it needs, or, if there are none, as it has complete ones."""
    kinds = {size: fits(tokens, counts, size) for size in SIZES}
    whole = [size for size, kind in kinds.items() if kind == "all"]
    return whole or [size for size, kind in kinds.items() if kind == "complete"]
