"""A stream as other tools replay it: Mooncake's lines of JSON, as aiperf's `mooncake_trace`, vLLM's `timed_trace` and
Dynamo's replay read them (https://github.com/kvcache-ai/Mooncake; aiperf 0.13)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.sim.types import Workload

BLOCK = 512
"""tokens that a hash stands for"""


def lines(workload: Workload) -> Iterator[str]:
    """A line for each request, in order.

    `hash_ids` are equal where prompts share whole blocks, and nowhere else; the last block may be shorter. A request
    that comes after another has `delay` in place of `timestamp`, both in milliseconds, and stands behind that one in
    its session. Raises InvalidInput for what such a line cannot say.
    """
    _check(workload)
    blocks = _Blocks(workload)
    outputs = np.minimum(workload.output_tokens, workload.max_new_tokens).tolist()
    for i, (waits, session) in enumerate(zip(workload.waits.tolist(), workload.session.tolist(), strict=True)):
        line: dict[str, Any] = {}
        if waits:
            line["delay"] = _ms(float(workload.delay_s[i]))
        else:
            line["timestamp"] = _ms(float(workload.arrival_s[i]))
        if session >= 0:
            line["session_id"] = str(session)
        line |= {"input_length": int(workload.prompt_tokens[i]), "output_length": outputs[i], "hash_ids": blocks.of(i)}
        yield json.dumps(line)


def write(workload: Workload, path: Path) -> None:
    """Raises InvalidInput for a stream that cannot be written so, PrebleexpError where the disk refuses."""
    text = "".join(f"{line}\n" for line in lines(workload))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PrebleexpError(f"{path} cannot be written: {error.strerror}") from None


def _check(workload: Workload) -> None:
    """What the lines have no word for."""
    turn_of, before = np.repeat(np.arange(len(workload)), workload.waits), workload.after_ids
    several = bool((workload.waits > 1).any())
    other = several or bool((workload.session[turn_of] != workload.session[before]).any())
    for wrong, what in (
        (other, "requests that come after several others, or another session's"),
        (workload.is_capped, "requests that wait for a number of ends (max_concurrency)"),
        (workload.staged, "stages that wait for each other"),
    ):
        if wrong:
            raise InvalidInput(f"format=mooncake has no word for {what}; take format=parquet")


def _ms(seconds: float) -> float | int:
    """Whole where it is."""
    value = round(seconds * 1e3, 6)
    return int(value) if value == int(value) else value


class _Blocks:
    """Numbers for blocks of prompts: by the block before and by the pieces of segments in them."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._ids: dict[tuple[object, ...], int] = {}

    def of(self, request: int) -> list[int]:
        rows = slice(*self._workload.segment_offsets[request : request + 2])
        found, before, pieces, room = list[int](), -1, list[tuple[int, int, int]](), BLOCK
        segments = zip(
            self._workload.segment_ids[rows].tolist(), self._workload.segment_tokens[rows].tolist(), strict=True
        )
        for segment, tokens in segments:
            at = 0
            while at < tokens:
                taken = min(room, tokens - at)
                pieces.append((segment, at, at + taken))
                at, room = at + taken, room - taken
                if room == 0:
                    before, pieces, room = self._id(before, pieces), [], BLOCK
                    found.append(before)
        return [*found, self._id(before, pieces)] if pieces else found

    def _id(self, before: int, pieces: list[tuple[int, int, int]]) -> int:
        return self._ids.setdefault((before, *pieces), len(self._ids))
