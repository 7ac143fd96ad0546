"""Prefixes that requests of a log share by a name of theirs: an app's, a tenant's or a template's system prompt."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads.columns import Columns, set_column
from prebleexp.workloads.rows import Rows

NONE = ("", "none", "null")
"""what stands for no prefix, whatever its case, beside nothing at all"""
CURE = "workload.columns={prefix: FIELD} workload.prefix_tokens=N says whose system prompts are the same"
ROLES = ("prefix", "prefix_tokens")
"""what workload.columns can name"""
ASKED = "workload.columns={prefix: …} and workload.prefix_tokens"


class Prefixes(NamedTuple):
    """Of n requests."""

    group: Longs
    """(n,) which prefix, from 0 on"""
    tokens: Longs
    """(n,) of it, 0 for none: also where the prompt is no longer than it"""
    says: str
    doubt: str

    def chains(self, session: Ints) -> Ints:
        """(n,) numbers of those turns of a session that have the same prefix: one with another doesn't go on."""
        which = np.where(self.tokens > 0, self.group + 1, 0)
        pairs = session.astype(np.int64) * (int(which.max(initial=0)) + 1) + which
        return np.unique(pairs, return_inverse=True)[1].astype(np.int32)


def are_asked_for(columns: Columns, prefix_tokens: int | None) -> bool:
    """Whether they say what prompts share even where messages or tokens' ids are there."""
    return prefix_tokens is not None or not {*ROLES}.isdisjoint(columns)


def read(rows: Rows, columns: Columns, prefix_tokens: int | None, inputs: Longs) -> Prefixes | None:
    """With which prefix each prompt of (n,) `inputs` tokens begins; None unless `columns` names the field.

    A prefix has `prefix_tokens` tokens, or what the field says that `columns` names for that. Raises InvalidInput,
    naming the file, where its length is not said, or said twice, or where a prefix has two.
    """
    name, of = set_column(rows, columns, "prefix"), set_column(rows, columns, "prefix_tokens")
    if name is None:
        if prefix_tokens is None and of is None:
            return None
        raise InvalidInput(
            f"{rows.path}: there are tokens of a prefix, and nothing says which prompts have it: name the field, with "
            "workload.columns={prefix: …}"
        )
    if (prefix_tokens is None) == (of is None):
        problem = "are both there: leave one out" if of is not None else "are not there: say one of them"
        raise InvalidInput(
            f"{rows.path}: {name} says whose prefixes are the same; workload.prefix_tokens=N and "
            f"workload.columns={{prefix_tokens: …}}, which say how long these are, {problem}"
        )
    numbers: dict[object, int] = {}
    values = [None if _is_none(one) else one for one in rows.keys(name)]
    group = np.array([-1 if one is None else numbers.setdefault(one, len(numbers)) for one in values], np.int64)
    tokens = np.full(len(rows), prefix_tokens or 0, np.int64) if of is None else rows.integers(of)
    first = np.full(len(numbers) + 1, -1, np.int64)
    """of each prefix, its tokens; the last is of those that have none"""
    first[group[::-1]] = tokens[::-1]
    if len(differ := np.flatnonzero((group >= 0) & (tokens != first[group]))):
        row = int(differ[0])
        raise rows.wrong(
            row, f"{of}={tokens[row]} is not valid; {name}={values[row]} has {first[group[row]]} in an earlier row"
        )
    has = (group >= 0) & (tokens > 0)
    short = has & (inputs <= tokens)
    sizes = first[:-1]
    long = f"{sizes.min(initial=2**31):,}" + (f" to {sizes.max():,}" if len({*sizes.tolist()}) > 1 else "")
    says = f"{name}, {len(numbers):,} prefixes of {long} tokens" if numbers else f"{name}, which is nowhere"
    if without := int((~has).sum()):
        says += f", none in {without:,} of {len(rows):,} rows"
    doubt = f"{int(short.sum()):,} prompts are no longer than their prefix by {name}, and are taken for others"
    return Prefixes(np.maximum(group, 0), np.where(has & ~short, tokens, 0), says, doubt if short.any() else "")


def _is_none(value: object) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, str) and value.strip().lower() in NONE
