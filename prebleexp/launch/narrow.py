"""A table that a terminal has room for: columns that can be spared are left out, and it is said which."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

GAP = 2


def narrowed(
    heads: Sequence[str], lines: Sequence[Sequence[str]], spare: Sequence[str]
) -> tuple[list[str], list[list[str]], list[str]]:
    """Heads and lines without as many of the columns `spare`, in that order, as it takes; and those left out."""
    width, gone = shutil.get_terminal_size().columns, set[str]()
    wide = {head: max(len(line[i]) for line in (heads, *lines)) + GAP for i, head in enumerate(heads)}
    for head in spare:
        if sum(wide[one] for one in heads if one not in gone) - GAP <= width:
            break
        if head in wide:
            gone.add(head)
    kept = [i for i, head in enumerate(heads) if head not in gone]
    return (
        [heads[i] for i in kept],
        [[line[i] for i in kept] for line in lines],
        [head for head in heads if head in gone],
    )
