"""What GPUs hold of prompts, as sets."""

from __future__ import annotations

import itertools

from prebleexp.sim.types import Workload

Path = tuple[int, ...]


class Model:
    """What each GPU holds, as a set of positions: a context's segments so far, and tokens into the next."""

    def __init__(self, workload: Workload, gpus: int) -> None:
        offsets, self.held = workload.segment_offsets, [set[Path]() for _ in range(gpus)]
        self.ids = [tuple(workload.segment_ids[a:b].tolist()) for a, b in itertools.pairwise(offsets)]
        self.tokens = dict(zip(workload.segment_ids.tolist(), workload.segment_tokens.tolist(), strict=True))
        self.answers = workload.answer_segment.tolist()
        self.outputs = workload.output_tokens.tolist()

    def context(self, request: int) -> list[Path]:
        """The positions of its tokens."""
        path = [(one, at) for one in self.ids[request] for at in range(self.tokens[one])]
        if self.answers[request] >= 0:
            path += [(self.answers[request], at) for at in range(self.outputs[request])]
        return path

    def store(self, request: int, gpu: int, tokens: int) -> None:
        self.held[gpu] |= set(self.context(request)[:tokens])

    def forget(self, request: int, gpu: int, tokens: int) -> None:
        self.held[gpu] -= set(self.context(request)[tokens:])

    def forget_all(self, gpu: int) -> None:
        self.held[gpu].clear()

    def matched(self, request: int, gpu: int) -> int:
        prompt = self.context(request)[: sum(self.tokens[one] for one in self.ids[request])]
        return next((at for at, one in enumerate(prompt) if one not in self.held[gpu]), len(prompt))

    def is_leaf(self, request: int, gpu: int, tokens: int) -> bool:
        """Whether nothing is held that lies beyond what would be forgotten: caches drop leaves."""
        mine = self.context(request)
        gone = set(mine[tokens:]) & self.held[gpu]
        others = (self.context(other) for other in range(len(self.ids)))
        return not any(
            set(path) & gone and any(one in self.held[gpu] and one not in gone for one in path[tokens:])
            for path in others
        )
