"""llm-d's profiles with a filter or KV events, and a Kubernetes Service, in plain Python: whom they may choose."""

from __future__ import annotations

from typing import NamedTuple

from tests.support.reference.llmd_blocks import Believed, Block, counted

Prompt = list[tuple[int, int]]
MOST = 4_194_304


class Filter(NamedTuple):
    threshold: float
    most_tokens: int
    most_ttft_ms: float
    tokens_per_s: float


def sticky(rule: Filter, shares: list[float], tokens: list[int], candidates: list[int]) -> list[int]:
    """What prefix-cache-affinity-filter lets through."""
    having = [gpu for gpu in candidates if shares[gpu] >= rule.threshold]
    others = [gpu for gpu in candidates if gpu not in having]
    if len(candidates) <= 1 or rule.threshold <= 0 or not having:
        return candidates
    if others:
        best, best_of_others = (min(tokens[gpu] for gpu in some) for some in (having, others))
        if rule.most_tokens and best - best_of_others > rule.most_tokens:
            return candidates
        times = [one / rule.tokens_per_s * 1000.0 for one in (best, best_of_others)]
        if rule.most_ttft_ms and times[0] - times[1] > rule.most_ttft_ms:
            return candidates
    return having


class Optimized:
    """The filter before the token-load-scorer, over an approximate index."""

    def __init__(self, rule: Filter, believed: list[Believed]) -> None:
        self.rule, self.believed = rule, believed
        self.tokens = [0] * len(believed)
        self.own: dict[int, tuple[int, int]] = {}

    def best(self, blocks: list[Block], candidates: list[int]) -> set[int]:
        size = self.believed[0].rules.block_size
        held = counted(self.believed, blocks)
        among = sticky(self.rule, [one / len(blocks) for one in held], self.tokens, candidates)
        load = {gpu: min(MOST, self.tokens[gpu] + (len(blocks) - held[gpu]) * size) for gpu in among}
        return {gpu for gpu in among if load[gpu] == min(load.values())}

    def sent(self, request: int, blocks: list[Block], gpu: int) -> None:
        uncached = (len(blocks) - counted(self.believed, blocks)[gpu]) * self.believed[0].rules.block_size
        self.believed[gpu].put(blocks)
        self.tokens[gpu] += uncached
        self.own[request] = gpu, uncached

    def first_token(self, request: int) -> None:
        gpu, uncached = self.own.pop(request)
        self.tokens[gpu] -= uncached


def tokens_of(prompt: Prompt) -> list[tuple[int, int]]:
    return [(segment, one) for segment, size in prompt for one in range(size)]


class Precise:
    """What GPUs said they hold, prompt by prompt, and what was sent there of late."""

    def __init__(self, gpus: int, block_size: int, speculative_s: float) -> None:
        self.size, self.for_s = block_size, speculative_s
        self.holds = [list[list[tuple[int, int]]]() for _ in range(gpus)]
        self.sends = [list[tuple[float, list[tuple[int, int]]]]() for _ in range(gpus)]

    def blocks(self, prompt: Prompt, gpu: int, now: float) -> int:
        tokens = tokens_of(prompt)
        known = self.holds[gpu] + [one for until, one in self.sends[gpu] if until > now]
        return max((_common(tokens, one) for one in known), default=0) // self.size

    def scores(self, prompt: Prompt, gpus: list[int], now: float) -> list[float]:
        """The share of its full blocks, of a prompt that has any."""
        whole = len(tokens_of(prompt)) // self.size
        return [min(whole, self.blocks(prompt, gpu, now)) / whole for gpu in gpus]

    def sent(self, prompt: Prompt, gpu: int, now: float) -> None:
        self.sends[gpu].append((now + self.for_s, tokens_of(prompt)))


def _common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


class Service:
    """The connections of a client: (GPU, since when it is idle)."""

    def __init__(self, keep_alive_s: float) -> None:
        self.keep_alive_s, self.idle = keep_alive_s, list[tuple[int, float]]()

    def takes(self, now: float) -> int | None:
        """The GPU of the connection that it takes; None: it opens one."""
        self.idle = [one for one in self.idle if now - one[1] <= self.keep_alive_s]
        return self.idle.pop()[0] if self.idle else None

    def finished(self, gpu: int, now: float) -> None:
        if self.keep_alive_s > 0:
            self.idle.append((gpu, now))
