"""What is sent as a prompt: tokens that are shared where segments are, and nowhere else.

A segment's tokens are hashes of its id and their places in it, so that prompts have equal tokens exactly as far as
their leading segments are equal, but for one token in as many as the vocabulary has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prebleexp.sim.types import Longs, Workload

LEAST_ID = 16
"""ids below it may be of special tokens"""
PLACES = 1 << 20
"""tokens of a segment have different hashes up to so many"""


@dataclass(frozen=True)
class Prompts:
    """The prompts of a stream's requests."""

    workload: Workload
    seed: int
    vocabulary: int
    """ids of tokens are below it"""

    def ids(self, request: int, answers: Mapping[int, Sequence[int]] | None = None) -> list[int]:
        """A request's prompt. `answers` are tokens that came for earlier ones, by the segment that they are of: they
        stand there, as many as the segment has, made up where they are fewer."""
        of = self.workload
        rows = slice(of.segment_offsets[request], of.segment_offsets[request + 1])
        found: list[int] = []
        for segment, many in zip(of.segment_ids[rows].tolist(), of.segment_tokens[rows].tolist(), strict=True):
            real = list((answers or {}).get(segment, ()))[:many]
            found += real
            if len(real) < many:
                found += self._made_up(segment, len(real), many)
        return found

    def _made_up(self, segment: int, begin: int, end: int) -> list[int]:
        places = np.arange(begin, end, dtype=np.uint64)
        mixed = _mixed(np.uint64(segment) * np.uint64(PLACES) + places ^ _mixed(np.array([self.seed], np.uint64)))
        ids: Longs = (LEAST_ID + mixed % np.uint64(self.vocabulary - LEAST_ID)).astype(np.int64)
        return ids.tolist()  # type: ignore[no-any-return]


def _mixed(values: Any) -> Any:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014), of 64 bits each."""
    with np.errstate(over="ignore"):
        values = (values + np.uint64(0x9E3779B97F4A7C15)).astype(np.uint64)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))


def words(ids: Sequence[int]) -> str:
    """Tokens as words: as many tokens again under a tokenizer with such words, as mocks have it; more under others."""
    return " ".join([f"t{one}" for one in ids])


Body = Callable[[Sequence[int], int], Mapping[str, Any]]


def body_of(kind: str, model: str) -> tuple[str, Body]:
    """Of `ids`, `text` or `chat` the path, and what is posted there for a prompt and so many tokens of output."""

    def common(output: int) -> dict[str, Any]:
        # extensions of vLLM and SGLang: the answer is as long as the stream has it
        exact = {"min_tokens": output, "ignore_eos": True, "return_token_ids": True}
        stream = {"stream": True, "stream_options": {"include_usage": True}}
        return {"model": model, "max_tokens": output, "temperature": 0.0} | stream | exact

    def of_ids(ids: Sequence[int], output: int) -> Mapping[str, Any]:
        return common(output) | {"prompt": ids}

    def of_text(ids: Sequence[int], output: int) -> Mapping[str, Any]:
        return common(output) | {"prompt": words(ids)}

    def of_chat(ids: Sequence[int], output: int) -> Mapping[str, Any]:
        return common(output) | {"messages": [{"role": "user", "content": words(ids)}]}

    path = "/v1/chat/completions" if kind == "chat" else "/v1/completions"
    return path, {"ids": of_ids, "text": of_text, "chat": of_chat}[kind]
