"""What a routing policy is: a frozen dataclass whose fields are its YAML, with one function that picks a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from prebleexp.sim import memory as memories
from prebleexp.sim.memory import Memory
from prebleexp.sim.types import Workload

if TYPE_CHECKING:
    import numpy.typing as npt


def memory(ints: npt.ArrayLike = (0,), floats: npt.ArrayLike = (0.0,), *, tree_for: int = 0) -> Memory:
    """A compiled policy's memory, from what it should hold at the start (at least one element each).

    `tree_for` requests: it also keeps a tree over their prompts (see `prebleexp.policies.prefix_tree`).
    """
    return memories.memory(ints, floats, tree_for)


@dataclass(frozen=True)
class Policy:
    """Routes requests to GPUs. Subclass it, give `route`, and name the class in conf/policy/<name>.yaml.

    With `compiled = True`, `route` and `finish` are compiled by numba: they may use their arguments, numbers and
    numpy, and `start` must return `memory(...)`. Otherwise they are ordinary Python, some fifty times slower, with
    the same results; `start` may return anything.

    `gpus` is a record array, one record a GPU: `gpus[g].outstanding`, `queued`, `running` (requests), `kv_free`,
    `evictable` (tokens), `window_hit_tokens`, `window_prompt_tokens` (of prefills in the last 30 s), `generated`
    (output tokens of the running requests), `ahead` (see `follows_running`), `requests` (ever routed there).
    `request` is a record: `index`, `arrival_s`, `prompt_tokens`, `max_new_tokens`, `prefix_group`, `expected_output`
    (tokens; what `lengths` tells), and its prompt as rows first_segment … first_segment + segments of `prompts.ids` and
    `prompts.ends`:
    two prompts share exactly the tokens of their equal leading ids. Do not write to any of them.

    A compiled policy says what a decision costs by counting in `state.work` (see `prebleexp.sim.memory`).
    """

    compiled: ClassVar[bool] = False
    reads_lengths: ClassVar[bool] = True
    """whether `request.expected_output` can change what it does; if not, `lengths` is not part of a run's key"""
    follows_running: ClassVar[bool] = False
    """whether each running request is looked at before every decision. What unfinished requests have to come is the sum
    of their `expected_output`, less `generated`, less `ahead`: that is zero, or less where some are beyond what was
    expected of them, since these have nothing to come, not less than nothing. Where lengths are refined it is told
    anyway, and may be above zero. Always zero for policies that do not read lengths"""

    def start(self, workload: Workload, gpus: int, seed: int) -> Any:
        """The policy's state at the beginning of a run, handed back to `route` and `finish`. Randomness comes from
        `seed` alone.

        `workload` is for sizes and recorded decisions; a policy that reads lengths from it is an oracle.
        """
        return memory()

    @staticmethod
    def route(state: Any, gpus: Any, request: Any, prompts: Any, now: float) -> int:
        """The GPU, from 0 to len(gpus) − 1, that gets `request`, which arrives at `now` seconds."""
        return -1

    @staticmethod
    def finish(
        state: Any, gpus: Any, request: Any, prompts: Any, gpu: int, ttft_s: float, tpot_s: float, now: float
    ) -> None:
        """The last token of `request` was reported. `tpot_s` is (latency − TTFT) / output tokens, as the release
        reports it."""

    @staticmethod
    def evicted(state: Any, gpus: Any, request: Any, prompts: Any, gpu: int, tokens: int, now: float) -> None:
        """The prefix cache of `gpu` dropped a part of the context of `request`: what lies beyond `tokens` tokens."""
