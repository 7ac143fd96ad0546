"""Prompts as what was said, in the words of OpenAI, Anthropic, Gemini and plain completions, made into segments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Longs
from prebleexp.workloads.beginnings import PLAIN, Said, cut
from prebleexp.workloads.blocks import Prompts
from prebleexp.workloads.columns import matching
from prebleexp.workloads.rows import MOST, NOTHING, Rows, parsed

MESSAGES = ("messages", "contents", "input", "prompt")
HEADS = ("tools", "functions", "tool_schemas", "system", "system_instruction", "instructions")
"""what stands before the messages, in this order"""
PICTURE = "data:"
"""how what is no text begins, where it is written out"""
EMPTY: tuple[Any, ...] = (None, "", "{}", "[]", {}, [])
"""what stands where nothing was kept of what was said"""
UNKEPT = "nothing kept"
"""the role of that"""


def field_of(rows: Rows, counted: bool) -> str | None:
    """Where what was asked is: a list of messages, or a text. If tokens were `counted`, a field may be empty."""
    empty = EMPTY if counted else NOTHING
    for alias in MESSAGES:
        for name in matching(rows, alias):
            first = next((one for one in rows.optional(name) if one not in empty), None)
            if _are_ids(first):
                continue
            if isinstance(first, list | dict) or (
                isinstance(first, str) and (alias != "messages" or first[:1] in "[{")
            ):
                return name
    return None


def ids_of(rows: Rows) -> str | None:
    """Where the prompt is as ids of its tokens."""
    for alias in MESSAGES:
        for name in matching(rows, alias):
            if _are_ids(next((one for one in rows.optional(name) if one not in EMPTY), None)):
                return name
    return None


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], int)


def all_said(rows: Rows, name: str, counted: npt.NDArray[np.bool_]) -> list[Said]:
    """Of each row, tools and system first, in pieces where texts begin alike. A row of which nothing was kept is like
    no other, if its tokens were `counted`: (n,).

    Raises InvalidInput, naming the row, for what is not valid.
    """
    heads = [(alias, rows.optional(found[0])) for alias in HEADS if (found := matching(rows, alias))]
    made = []
    for row, value in enumerate(rows.optional(name)):
        if value in EMPTY and counted[row]:
            made.append([(UNKEPT, str(row))])
            continue
        if value is None:
            raise rows.invalid(row, name, value, "in every row that is a request")
        said = [(alias, _head(column[row])) for alias, column in heads if column[row]]
        made.append(said + _messages(rows, row, name, value))
    return cut(made)


def _head(value: object) -> str:
    return value if isinstance(value, str) else _text(value) or json.dumps(value, sort_keys=True)


def _messages(rows: Rows, row: int, name: str, value: object) -> Said:
    """Roles and texts. What is no text, as calls of tools, counts as its JSON."""
    if isinstance(value, str):
        inner = parsed(value) if value[:1] in ("[", "{") else None
        if inner is None and (name.rpartition(".")[2] == "messages" or not value):
            raise rows.wrong(row, f"{name} is not valid; it must be a list of objects with role and content")
        value = [{"role": PLAIN, "content": value}] if inner is None else inner
    if isinstance(value, Mapping) and isinstance(value.get("messages"), list):
        value = value["messages"]
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        value = [{"role": "user", "content": one} for one in value]
    if not (isinstance(value, list) and value and all(isinstance(one, dict) for one in value)):
        raise rows.wrong(row, f"{name} is not valid; it must be a list of objects with role and content")
    found = []
    for one in value:
        content = one.get("content", one.get("parts"))
        rest = {key: part for key, part in one.items() if key not in ("role", "content", "parts") and part}
        found.append((str(one.get("role")), _text(content) + (json.dumps(rest, sort_keys=True) if rest else "")))
    return found


def _text(content: Any) -> str:
    """Of a text, or of parts: texts as they are, others as their JSON; a picture as what names it."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content if not content.startswith(PICTURE) else f"{PICTURE}{hash_of(content)}"
    if isinstance(content, Mapping):
        if isinstance(inner := content.get("parts"), list):
            return _text(inner)
        kinds = set(content) - {"type", "cache_control", "annotations"}
        if kinds == {"text"} and isinstance(content["text"], str):
            return str(content["text"])
        return json.dumps(_short(content), sort_keys=True)
    return "".join(map(_text, content)) if isinstance(content, list) else json.dumps(content)


def _short(value: Any) -> Any:
    """Without the letters of pictures."""
    if isinstance(value, Mapping):
        return {key: _short(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return f"{PICTURE}{hash_of(value)}" if isinstance(value, str) and value.startswith(PICTURE) else value


def hash_of(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


class _Tree(NamedTuple):
    """Different beginnings of what was said, a node each; who comes first stands first."""

    parent: list[int]
    letters: list[int]
    depth: list[int]
    paths: list[list[int]]
    """of each request, its nodes"""


def _tree(said: Sequence[Said]) -> _Tree:
    number: dict[tuple[int, str, str], int] = {}
    tree = _Tree([], [], [], [])
    for messages in said:
        node, path = -1, list[int]()
        for role, text in messages:
            above = node
            node = number.setdefault((above, role, text), len(number))
            if node == len(tree.parent):
                tree.parent.append(above)
                tree.letters.append(len(text))
                tree.depth.append(len(path) + 1)
            path.append(node)
        tree.paths.append(path)
    return tree


def segments(said: Sequence[Said], counts: Longs, characters_per_token: float) -> Prompts:
    """A segment for each different beginning; of a request that has a count of its own (`counts`, −1: none), segments
    have so many tokens in all; within it by their letters.

    What is shared has one size: that of the request that ends there; else the letters' share of what all that begin so
    have, and no more than leaves a token to each segment of theirs. A request without a count has
    letters / `characters_per_token`. Where two that are alike have two counts, the first one's; where a longer one has
    fewer tokens than the one that it begins with, it has a token a message more.
    """
    tree = _tree(said)
    n = len(tree.parent)
    above = np.array(tree.parent, np.int64)
    own = [max(1, round(letters / characters_per_token)) for letters in tree.letters]
    pinned = [-1] * n
    many, tokens, letters = [0] * n, [0] * n, [0] * n
    """of the requests with a count that come through a node"""
    before = [0] * n
    for node in range(n):
        before[node] = tree.letters[node] + (before[above[node]] if above[node] >= 0 else 0)
    room = [MOST] * n
    """tokens that a path may have up to a node, and leave one to each node of those below that are known"""
    for path, count in zip(tree.paths, counts.tolist(), strict=True):
        if count < 0:
            continue
        last = path[-1]
        if pinned[last] < 0:
            pinned[last] = max(count, len(path))
        for node in path:
            many[node] += 1
            tokens[node] += count
            letters[node] += before[last]
            room[node] = min(room[node], pinned[last] - (len(path) - tree.depth[node]))
    ends, sizes = [0] * n, [0] * n
    for node in range(n):
        start = ends[above[node]] if above[node] >= 0 else 0
        if pinned[node] >= 0:
            size = pinned[node] - start
        elif many[node]:
            said_before = before[above[node]] if above[node] >= 0 else 0
            left = letters[node] - many[node] * said_before
            share = (tokens[node] - many[node] * start) / left if left > 0 else 0.0
            size = min(round(tree.letters[node] * share), room[node] - start)
        else:
            size = own[node]
        sizes[node] = min(max(1, size), MOST)
        ends[node] = min(start + sizes[node], MOST)
    offsets = np.cumsum([0, *map(len, tree.paths)])
    ids = np.array([node for path in tree.paths for node in path], np.int32)
    return Prompts(offsets, ids, np.array(sizes, np.int32)[ids])


def lengths(said: Sequence[Said]) -> Longs:
    """Characters of each of n prompts, all messages together: (n,)."""
    return np.array([sum(len(text) for _, text in one) for one in said], np.int64)
