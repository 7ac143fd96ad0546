"""vLLM's V1 engine, step for step (0.33.0): groups of layers, LoRA, speculative decoding; of KV connectors NIXL's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from prebleexp.checks import flag, integer, is_integer, is_number, one_of, require
from prebleexp.engines.base import Engine
from prebleexp.engines.vllm.speculative import SpeculativeConfig
from prebleexp.sim.types import CHUNKED, FULL, ONE_TABLE, SLIDING, Layers, Longs, Setup, Steps, Tables

if TYPE_CHECKING:
    from prebleexp.engines.vllm.groups import Grouping
    from prebleexp.sim.comer import Coming

DEFAULTS = ((160.0, 16384, 1024), (70.0, 8192, 1024), (0.0, 2048, 256))
"""(memory of a GPU in GiB or more, max_num_batched_tokens, max_num_seqs): vllm/engine/arg_utils.py"""
SMALL = "a100"
"""has the smallest ones in spite of its memory"""
FLAGS = ("enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "scheduler_reserve_full_isl")
UNLESS_SAID = ("max_loras", "speculative_config", "prefill_schedule_interval", "kv_load_failure_policy")
"""fields that are no part of a key where they have their default"""
AT_ONCE = 3
"""steps of a GPU that are scheduled without a pause"""
MOST_SEQS, MOST_TOKENS = 2**16, 2**24


@dataclass(frozen=True)
class VLLM(Engine):
    """The fields have vLLM's names and defaults; null: vLLM's default for the GPU's memory.

    A step computes at most max_num_batched_tokens: running requests first, in order of admission, then waiting ones, in
    order of arrival or of priority, until one does not fit. Nothing is kept for tokens still to be generated: if blocks
    run out, the last of the running requests is preempted, and computed again later.

    A request ends at the context's length, if not before. It is refused if that leaves no room for an answer, or if it
    would not fit into all blocks.
    Source: vllm/v1/core and vllm/v1/engine/core.py, checked step by step (docs/core.md).
    """

    compiles: ClassVar[str] = "prebleexp.engines.vllm.stepping"
    project: ClassVar[str] = "vllm"
    loses: ClassVar[bool] = True
    resumes: ClassVar[bool] = True
    protocols: ClassVar[tuple[str, ...]] = ("pull", "push_at_end")
    fetches: ClassVar[bool] = True
    moves: ClassVar[bool] = True
    adapts: ClassVar[bool] = True
    parallel: ClassVar[bool] = True
    dp_sync_interval: ClassVar[int] = 16
    """steps after which ranks that step together ask each other whether any has work, as after the first one"""
    idle_poll_s: ClassVar[float] = 0.001
    """between two looks for KV that has come, or was read, while there is nothing to compute"""
    hears_at_results: ClassVar[bool] = False
    """whether a step's results tell of all transfers that are over by then; in vLLM, when it was launched"""

    max_num_batched_tokens: int | None = None
    """tokens that a step computes at most, prompts and decoding alike"""
    max_num_seqs: int | None = None
    """requests that run at once, at most"""
    block_size: int = 16
    """tokens of a block of KV"""
    enable_prefix_caching: bool = True
    """full blocks are found again by the prefix that they end"""
    enable_chunked_prefill: bool = True
    """false: a prompt is computed in one step"""
    scheduling_policy: str = "fcfs"
    """fcfs, or priority: the lowest first, and the highest is preempted"""
    async_scheduling: bool = True
    """a step is scheduled while the one before it runs: the host's time is hidden, an arrival waits a step more"""
    scheduler_reserve_full_isl: bool = True
    """a request is admitted only if all tokens that it has would fit, not just its first chunk"""
    watermark: float = 0.0
    """share of the blocks that stays free at an admission"""
    long_prefill_token_threshold: int = 0
    """most tokens of one request in a step; 0: no limit"""
    host_s: float = 0.001
    """of the host a step, where it is not hidden"""
    prefix_cache_retention_interval: int | None = 0
    """layers with a sliding window keep the blocks before every so many tokens, beside those before the end of a prompt
    and before where prompts part; 0: these alone; null: all"""
    disable_hybrid_kv_cache_manager: bool | None = None
    """true: all layers keep all of a context, as if none had a window; null: where KV moves between GPUs otherwise
    than by pull, and where layers look back to where a chunk begins"""

    speculative_config: Any = None
    """drafts: `method` and `num_speculative_tokens` as in vLLM, `acceptance_rate`, `draft_rate` and `draft_cost`; see
    docs/core.md"""
    max_loras: int = 1
    """LoRA adapters that run at once, at most; a request with another adapter waits, and later ones are tried"""
    prefill_schedule_interval: int = 1
    """prompts are computed in every so many steps, and outputs alone in those between; 1: in each"""
    kv_load_failure_policy: str = "fail"
    """of a request whose KV does not arrive: fail, it ends with an error; or recompute, its GPU computes the rest"""

    def __post_init__(self) -> None:
        drafts = SpeculativeConfig.of(self.speculative_config)
        object.__setattr__(self, "speculative_config", drafts)
        valid = "false where ngram drafts: it looks at tokens when a step is over"
        known = drafts.method != "ngram" or self.async_scheduling is False
        require(known, "engine.async_scheduling", self.async_scheduling, valid)
        for name in ("max_loras", "prefill_schedule_interval", "block_size"):
            integer(f"engine.{name}", getattr(self, name), 1, MOST_SEQS)
        for name, most in (("max_num_batched_tokens", MOST_TOKENS), ("max_num_seqs", MOST_SEQS)):
            if getattr(self, name) is not None:
                integer(f"engine.{name}", getattr(self, name), 1, most)
        integer("engine.long_prefill_token_threshold", self.long_prefill_token_threshold, 0, MOST_TOKENS)
        one_of("engine.scheduling_policy", self.scheduling_policy, ("fcfs", "priority"))
        one_of("engine.kv_load_failure_policy", self.kv_load_failure_policy, ("fail", "recompute"))
        for name in FLAGS:
            flag(f"engine.{name}", getattr(self, name))
        if self.prefix_cache_retention_interval is not None:
            interval, valid = self.prefix_cache_retention_interval, "null, or whole blocks: a multiple of block_size"
            whole = is_integer(interval, 0, MOST_TOKENS) and interval % self.block_size == 0
            require(whole, "engine.prefix_cache_retention_interval", interval, valid)
        if self.disable_hybrid_kv_cache_manager is not None:
            flag("engine.disable_hybrid_kv_cache_manager", self.disable_hybrid_kv_cache_manager)
        share = is_number(self.watermark) and 0 <= self.watermark < 1
        require(share, "engine.watermark", self.watermark, "a number from 0 to below 1")
        require(is_number(self.host_s) and self.host_s >= 0, "engine.host_s", self.host_s, "a number of seconds, >= 0")
        tokens, seqs = self.max_num_batched_tokens, self.max_num_seqs
        if tokens is not None:
            least = max(self.block_size, seqs or 0)
            valid = f"at least engine.block_size and engine.max_num_seqs, {least} here"
            require(tokens >= least, "engine.max_num_batched_tokens", tokens, valid)

    def identity(self) -> dict[str, object]:
        """All fields, but of those in `UNLESS_SAID` what is as it is unless said: it changes nothing."""
        kept = (one for one in fields(self) if one.name not in UNLESS_SAID or getattr(self, one.name) != one.default)
        values = {one.name: getattr(self, one.name) for one in kept}
        drafts = vars(values.pop("speculative_config"))
        return values | ({"speculative_config": dict(drafts)} if drafts["method"] is not None else {})

    def columns(self) -> dict[str, Any]:
        """Its fields, with what is said of drafts as speculative_config.method."""
        shown = {one.name: getattr(self, one.name) for one in fields(self)}
        drafts = vars(shown.pop("speculative_config"))
        return shown | {f"speculative_config.{name}": value for name, value in drafts.items()}

    @property
    def draws(self) -> bool:
        """Whether chance decides which drafts are accepted."""
        return bool(self.speculative_config.draws)

    def limits(self, setup: Setup) -> tuple[int, int]:
        """(max_num_batched_tokens, max_num_seqs) for a GPU."""
        memory = 0.0 if setup.gpu == SMALL else setup.gpu_memory_gib
        _, tokens, seqs = next(row for row in DEFAULTS if memory >= row[0])
        seqs = self.max_num_seqs or min(seqs, self.max_num_batched_tokens or seqs)
        return self.max_num_batched_tokens or max(tokens, seqs), seqs

    @property
    def host_step_s(self) -> float:
        return 0.0 if self.async_scheduling else float(self.host_s)

    def steps(self, setup: Setup) -> Steps:
        return Steps(self.project, self.limits(setup)[0], host_s=self.host_step_s)

    def check_tiers(self, lends: bool) -> None:
        from prebleexp.engines.vllm.checks import check_moving

        check_moving(self, "where GPUs lend each other KV" if lends else "where cluster has tiers", not lends)
        valid = "true where cluster has tiers: blocks are known by their prefixes there, too"
        require(self.enable_prefix_caching, "engine.enable_prefix_caching", self.enable_prefix_caching, valid)

    def leaves_out(self, layer_kinds: Sequence[Layers], moves: bool) -> str:
        if not moves or self.disable_hybrid_kv_cache_manager or all(one.kind != SLIDING for one in layer_kinds):
            return ""
        return (
            "keeps all of a context for all layers where KV moves or steps go through stages, and vLLM a window of it "
            "for some: fewer requests fit here, and more is found; engine.disable_hybrid_kv_cache_manager=true does so "
            "in vLLM, too"
        )

    def check_roles(self, protocol: str) -> None:
        from prebleexp.engines.vllm.checks import check_moving

        check_moving(self, "where groups have roles", protocol == "pull")

    def check_stages(self) -> None:
        from prebleexp.engines.vllm.pipelined import check

        check(self)

    def check_moves(self) -> None:
        from prebleexp.engines.vllm.checks import check_moving

        check_moving(self, "where requests are moved", False)

    def kernels_for(self, setup: Setup) -> Any:
        if setup.ranks == setup.stages == 1:
            return self.kernels()
        from prebleexp.engines.vllm import lockstep, pipelined

        return lockstep if setup.ranks > 1 else pipelined

    def numbers(self) -> None:
        """What kernels read is in `start`: some of it depends on the GPU."""

    def start(self, setup: Setup) -> Any:
        from prebleexp.engines.vllm import rooms
        from prebleexp.engines.vllm.adapters import adapters
        from prebleexp.engines.vllm.records import Settings
        from prebleexp.engines.vllm.scheduling import cadence

        tokens, seqs = self.limits(setup)
        grouping, drafts, connected = self.grouping(setup), self.speculative_config, setup.tiers or setup.legs
        blocks = self._pool(setup, grouping) - 1  # vLLM never uses one of them
        segment_ids = max(setup.segment_ids, int(setup.workload.answer_segment.max(initial=-1)) + 1)
        settings = Settings(
            max_num_batched_tokens=tokens,
            max_num_seqs=seqs,
            block_size=self.block_size,
            blocks=blocks,
            blocks_kept_free=int(self.watermark * (blocks + 1)),
            long_prefill_token_threshold=self.long_prefill_token_threshold,
            enable_prefix_caching=self.enable_prefix_caching,
            enable_chunked_prefill=self.enable_chunked_prefill,
            reserve_full_isl=self.scheduler_reserve_full_isl,
            by_priority=self.scheduling_policy == "priority",
            async_scheduling=self.async_scheduling,
            host_s=self.host_step_s if setup.stages == 1 else 0.0,
            context_length=setup.context_length,
            drafts=drafts.drafts,
            draft_cost=float(drafts.cost),
            lookahead=drafts.lookahead,
            first_step=drafts.first_step,
            slots=drafts.slots,
            key_ahead=0 if connected else drafts.key_ahead,
            drops_last=connected and drafts.key_ahead > 0,
            idle_poll_s=self.idle_poll_s,
            hears_at_results=self.hears_at_results,
            tiered=setup.tiers,
            fenced=self.async_scheduling and (setup.tiers or setup.reads),
            connected=connected,
            fails=self.kv_load_failure_policy == "fail",
            tables=1 if grouping is None else len(grouping.groups),
            grouped=grouping is not None,
            one_by_one=setup.tiers or drafts.drafts > 0 or setup.stages > 1 or self.prefill_schedule_interval > 1,
            keys_ahead=max(AT_ONCE * setup.ranks, 1 + setup.stages) * self._a_step(setup) + self._most_pulled(setup),
            segment_ids=segment_ids,
            names_keys=False,
        )
        interval = self.prefix_cache_retention_interval
        groups = None if grouping is None else rooms.groups(setup, settings, grouping, interval)
        parallel = self.kernels_for(setup).parallel(setup, self) if setup.ranks * setup.stages > 1 else None
        held_back = cadence(setup.gpus, len(setup.workload), self.prefill_schedule_interval)
        seams = (groups, adapters(setup, self.max_loras), self.speculation(setup), held_back, parallel)
        return rooms.engines(setup, settings, setup.last_tokens, *seams)

    def speculation(self, setup: Setup) -> Any:
        """What is drafted and accepted; None: nothing is."""
        from prebleexp.engines.vllm.drafts import speculation

        return speculation(setup, self.speculative_config)

    def grouping(self, setup: Setup) -> Grouping | None:
        """Groups of the model's layers; None: one table does for all. Raises InvalidInput if chunks are no whole
        blocks."""
        kinds, disabled = setup.layer_kinds, self.disable_hybrid_kv_cache_manager
        chunks = [one.window for one in kinds if one.kind == CHUNKED]
        moves = (setup.legs and not setup.pulls) or setup.lends or setup.moves or setup.stages > 1
        if disabled or moves or all(one.kind == FULL for one in kinds) or (disabled is None and chunks):
            return None
        valid = "a divisor of the layers' chunks, or engine.disable_hybrid_kv_cache_manager=true"
        whole = all(one % self.block_size == 0 for one in chunks)
        require(whole, "engine.block_size", self.block_size, valid)
        from prebleexp.engines.vllm.groups import grouping

        return grouping(kinds, setup.kv_tokens, self.block_size)

    def _pool(self, setup: Setup, grouping: Grouping | None) -> int:
        """Blocks of a GPU's pool."""
        return setup.kv_tokens // self.block_size if grouping is None else grouping.blocks

    def come(self, mine: Any, setup: Setup, row: int, one: Coming) -> None:
        from prebleexp.engines.vllm import rooms

        rooms.come(mine, row, one, setup.context_length)

    def remembers(self, mine: Any) -> Longs | None:
        from prebleexp.engines.vllm import losing

        return losing.remembered(mine)

    def with_more_room(self, mine: Any, world: Any, g: int) -> Any:
        from prebleexp.engines.vllm import rooms

        return rooms.with_more(mine)

    def lose(self, mine: Any, world: Any, g: int, requests: Longs) -> None:
        from prebleexp.engines.vllm.losing import lose

        lose(mine, world, g, requests)

    def withdraw(self, mine: Any, world: Any, g: int, request: int) -> None:
        from prebleexp.engines.vllm.losing import withdraw

        withdraw(mine, world, g, request)

    def give_back(self, mine: Any, world: Any, g: int) -> Longs:
        from prebleexp.engines.vllm.losing import give_back

        return give_back(mine, world, g)

    def own_cache(self, setup: Setup) -> int | None:
        pool = self._pool(setup, self.grouping(setup))
        evicted = pool if setup.legs or setup.tiers else 0  # for KV that is to come
        evicted = setup.gpus * setup.kv_tokens // self.block_size if setup.moves else evicted  # on many GPUs at once
        return AT_ONCE * setup.ranks * 2 * self._a_step(setup) + evicted + self._most_pulled(setup)

    def _a_step(self, setup: Setup) -> int:
        """Blocks that a step of a GPU caches at most."""
        tokens, seqs = self.limits(setup)
        return self.tables(setup).number * (tokens // self.block_size + seqs)

    def _most_pulled(self, setup: Setup) -> int:
        """Blocks of the longest context, if it may come over a link."""
        longest = int(setup.last_tokens.max(initial=0)) // self.block_size + 1
        return self.tables(setup).number * longest if setup.legs or setup.tiers or setup.moves else 0

    def blocks(self, setup: Setup) -> tuple[int, Longs]:
        return self.block_size, setup.last_tokens // self.block_size

    def tables(self, setup: Setup) -> Tables:
        grouping = self.grouping(setup)
        return ONE_TABLE if grouping is None else grouping.tables

    def refuses(self, setup: Setup) -> npt.NDArray[np.bool_]:
        tokens, grouping, drafts = setup.last_tokens, self.grouping(setup), self.speculative_config
        if drafts.drafts:  # two steps may be under way, and the next drafts need room
            ahead = 2 * (1 + drafts.drafts) + drafts.lookahead
            tokens = np.maximum(tokens, np.minimum(tokens + ahead, setup.context_length))
        needed = -(-tokens // self.block_size)
        if grouping is not None:
            from prebleexp.engines.vllm.groups import most_blocks

            decodes = setup.decodes and self.scheduler_reserve_full_isl  # else one that lost its blocks tries for ever
            step = 1 + drafts.drafts if decodes else self.limits(setup)[0]
            in_flight = (2 if self.async_scheduling else 1) * step + drafts.lookahead * decodes
            needed = most_blocks(grouping, self.block_size, tokens, in_flight, setup.context_length)
        refused = (setup.workload.prompt_tokens >= setup.context_length) | (needed >= self._pool(setup, grouping))
        if not self.enable_chunked_prefill:
            refused |= tokens > self.limits(setup)[0]
        return np.asarray(refused)
