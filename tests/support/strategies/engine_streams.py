"""Random small streams for an engine and its reference: shared prefixes, repeats, next turns, little memory."""

from __future__ import annotations

from typing import Any

import numpy as np

Columns = dict[str, np.ndarray]
UNIT = 20_000  # nanoseconds
"""Every cost is a multiple of it, and every instant of arrival has its own remainder, more than 300 ns from the
others'. So no arrival falls together with the end of a step, unless that of its own instant."""


def random_setting(seed: int) -> tuple[dict[str, Any], Columns]:
    """A configuration that holds what both reference_vllm and reference_sglang read, and a stream in the format of the
    recordings. Every request fits the memory alone, in either engine."""
    rng = np.random.default_rng(seed)
    workload = _stream(rng)
    prompt = np.add.reduceat(workload["segment_tokens"], workload["segment_offsets"][:-1])
    # SGLang keeps room for at most 4096 tokens to come, but behind all that were there before a retraction
    to_come = np.minimum(workload["max_new_tokens"], workload["output_tokens"] - 1 + 4096)
    least = int((prompt + to_come).max()) + 2
    tokens = int(least * rng.choice([1.0, 1.2, 2.0, 4.0, 10.0]))
    block = int(rng.choice([1, 4, 16]))
    chunk = int(rng.choice([16, 64, 256, 2048]))
    running = int(rng.choice([1, 3, 16, 256, 256]))
    config = {
        "step_ns": 100 * UNIT,
        "token_ns": UNIT,
        "context_token_ns": UNIT * int(rng.integers(0, 2)),
        # SGLang
        "max_total_tokens": tokens,
        "chunked_prefill_size": chunk,
        "schedule_policy": str(rng.choice(["fcfs", "lpm"])),
        "overlap": bool(rng.integers(0, 2)),
        "max_running_requests": min(running, tokens // 2),
        # vLLM
        "max_num_batched_tokens": max(chunk, running),
        "max_num_seqs": running,
        "block_size": block,
        "num_blocks": int(1.1 * -(-tokens // block)) + 2,
        "enable_prefix_caching": bool(rng.random() < 0.8),
        "policy": str(rng.choice(["fcfs", "priority"])),
        "async_scheduling": bool(rng.integers(0, 2)),
        "reserve_full_isl": bool(rng.random() < 0.7),
        "watermark": float(rng.choice([0.0, 0.05])),
        "long_prefill_token_threshold": int(rng.choice([0, 0, 0, 24])),
        # SGLang
        "skip_finishing_decode": bool(rng.integers(0, 2)),
        "schedule_conservativeness": float(rng.choice([1.0, 1.0, 0.3, 2.0])),
    }
    return config, workload


def random_groups(seed: int) -> tuple[dict[str, Any], Columns]:
    """The same with groups of layers in vLLM's pool, of which some look back to a window or to where a chunk begins."""
    config, workload = random_setting(seed)
    rng, block, most = np.random.default_rng([seed, 1]), config["block_size"], config["max_num_batched_tokens"]
    kinds: list[dict[str, Any]] = []
    for _ in range(int(rng.choice([1, 2, 2, 3]))):
        kind = str(rng.choice(["full", "sliding", "sliding", "chunked"]))
        of = {"full": 0, "sliding": int(rng.integers(1, 200)), "chunked": block * int(rng.integers(1, 20))}[kind]
        kinds += [{"kind": kind, "window": of}] * int(rng.integers(1, 4))
    if all(one["kind"] == "full" for one in kinds):
        kinds.append({"kind": "sliding", "window": int(rng.integers(1, 200))})
    prompt = np.add.reduceat(workload["segment_tokens"], workload["segment_offsets"][:-1])
    blocks, flight = (
        -(-int((prompt + workload["output_tokens"]).max()) // block),
        most * (1 + config["async_scheduling"]),
    )
    least = sum(
        blocks if of["kind"] == "full" else min(blocks, -(-(of["window"] + flight) // block) + 1) for of in kinds
    )
    interval = rng.choice([-1, 0, 0, 0, 2, 5, 12])
    config |= {
        "groups": kinds,
        "num_blocks": int(least * rng.choice([1.0, 1.1, 1.5, 3.0, 10.0])) + 2,
        "max_model_len": int(rng.choice([2**20, block * blocks + 1])),
        "prefix_cache_retention_interval": None if interval < 0 else int(interval) * block,
    }
    return config, workload


def random_features(seed: int) -> tuple[dict[str, Any], Columns]:
    """The same, of one group or several, with adapters in two of three, and drafts in two of three."""
    config, workload = random_groups(seed) if seed % 2 else random_setting(seed)
    rng = np.random.default_rng([seed, 2])
    if rng.random() < 2 / 3:
        _adapt(rng, config, workload)
    if rng.random() < 2 / 3:
        _draft(rng, config, workload)
    return config, workload


def _adapt(rng: np.random.Generator, config: dict[str, Any], workload: Columns) -> None:
    """An adapter of each request; prompts that begin alike may have different ones."""
    config["max_loras"] = int(rng.choice([1, 1, 2, 3, 1000]))
    n, most = len(workload["arrival_ns"]), int(rng.choice([2, 4, 8]))
    workload["lora"] = rng.integers(0, most, n).astype(np.int32)


def _draft(rng: np.random.Generator, config: dict[str, Any], workload: Columns) -> None:
    n, drafts = len(workload["arrival_ns"]), int(rng.integers(1, 6))
    method = str(rng.choice(["eagle", "draft_model", *([] if config["async_scheduling"] else ["ngram"])]))
    config |= {"num_speculative_tokens": drafts, "spec_method": method}
    config.setdefault("max_model_len", 2**20)
    workload["accepts"] = rng.integers(0, drafts + 1, (n, int(rng.integers(1, 9)))).astype(np.int32)
    if method == "ngram":
        workload["drafts"] = rng.integers(0, drafts + 1, (n, int(rng.integers(1, 9)))).astype(np.int32)
    # what may be under way behind a request's end needs blocks too, or it preempts itself for ever
    blocks, groups = -(-3 * (1 + drafts) // config["block_size"]) + 1, len(config.get("groups", [0]))
    config["num_blocks"] += blocks * groups


def _stream(rng: np.random.Generator) -> Columns:
    n = int(rng.integers(2, 61))
    size = int(rng.choice([8, 60, 300]))  # of a prefix
    answer = int(rng.choice([3, 20, 100, 400]))
    ceiling = int(
        rng.choice([0, 0, 200, 5000], p=[0.4, 0.2, 0.35, 0.05])
    )  # of max_new_tokens; 0: as long as the output
    sizes: list[int] = []  # of the segments

    def segment(tokens: int) -> int:
        sizes.append(tokens)
        return len(sizes) - 1

    def length(mean: int) -> int:
        """Often a multiple of 16, where blocks end."""
        tokens = int(rng.integers(1, 2 * mean))
        return -(-tokens // 16) * 16 if rng.random() < 0.3 else tokens

    prefixes = [segment(length(size)) for _ in range(int(rng.integers(1, 5)))]
    prompts: list[list[int]] = []
    answers: list[int] = []
    outputs: list[int] = []
    groups: list[int] = []
    kinds = rng.dirichlet([1, 1, 1, 1, 1])
    for _ in range(n):
        kind = rng.choice(["alone", "shared", "repeat", "shorter", "turn"], p=kinds)
        earlier = int(rng.integers(0, len(prompts))) if prompts else -1
        output = int(rng.integers(1, 2 * answer))
        goes_on = segment(output) if rng.random() < 0.6 else -1
        group = -1
        if kind == "repeat" and prompts:
            prompt, goes_on, output = prompts[earlier], answers[earlier], outputs[earlier]
            group = groups[earlier]
        elif kind == "shorter" and prompts and len(prompts[earlier]) > 1:
            prompt, group = prompts[earlier][:-1], groups[earlier]
        elif kind == "turn" and prompts and answers[earlier] >= 0 and len(prompts[earlier]) < 12:
            prompt, group = [*prompts[earlier], answers[earlier], segment(length(12))], groups[earlier]
        elif kind == "shared":
            group = int(rng.integers(0, len(prefixes)))
            prompt = [prefixes[group], segment(length(20))]
        else:
            prompt = [segment(length(size))]
        prompts.append(prompt)
        answers.append(goes_on)
        outputs.append(output)
        groups.append(group)
    pause = int(rng.choice([20, 200, 3000]))  # units
    instant = np.cumsum(rng.random(n) < 0.7)
    arrival = np.cumsum(rng.geometric(1 / pause, n + 1))[instant] * UNIT + 312 * instant
    return {
        "arrival_ns": arrival.astype(np.int64),
        "output_tokens": np.array(outputs, np.int32),
        "max_new_tokens": np.maximum(outputs, ceiling).astype(np.int32),
        "prefix_group": np.array(groups, np.int32),
        "output_segment": np.array(answers, np.int32),
        "priority": rng.integers(0, 4, n).astype(np.int32),
        "segment_offsets": np.cumsum([0, *map(len, prompts)]).astype(np.int64),
        "segment_ids": np.array([s for prompt in prompts for s in prompt], np.int32),
        "segment_tokens": np.array([sizes[s] for prompt in prompts for s in prompt], np.int32),
    }


def random_offloads(
    seed: int, grouped: bool = False, drafted: bool = False, adapted: bool = False
) -> tuple[dict[str, Any], Columns]:
    """The same with a host's memory behind the cache, with groups of layers or one, drafts and adapters or none."""
    config, workload = random_groups(seed) if grouped else random_setting(seed)
    rng, tokens = np.random.default_rng([seed, 3]), int(workload["segment_tokens"].sum())
    if config["block_size"] == 1 and grouped:
        return random_offloads(seed + 1000, grouped, drafted, adapted)
    if config["block_size"] == 1:  # the plain model would take a minute
        config |= {"block_size": 4, "num_blocks": config["num_blocks"] // 4 + 2}
    blocks = -(-tokens // config["block_size"]) * len(config.get("groups", [0]))
    config |= {
        "enable_prefix_caching": True,
        "policy": "fcfs",
        "max_model_len": 2**20,
        "host_blocks": int(blocks * rng.choice([0.1, 0.3, 1.0, 10.0])) + 1,
        "offload_prompt_only": bool(rng.random() < 0.5),
        "eviction_policy": str(rng.choice(["lru", "lru", "arc"])),
        "store_threshold": int(rng.choice([0, 0, 2, 3])),
    }
    for name in ("load", "store"):  # few of them end together with a step
        config[f"{name}_latency_ns"] = UNIT * int(rng.integers(0, 4)) + 101
        config[f"{name}_block_ns"] = UNIT * int(rng.choice([1, 5, 40, 400]))
    if drafted:
        _draft(rng, config, workload)
    if adapted:
        _adapt(rng, config, workload)
    return config, workload


def random_pairs(
    seed: int, grouped: bool = False, drafted: bool = False, adapted: bool = False
) -> tuple[dict[str, Any], Columns]:
    """The same on two engines, one for prompts, with links between them: the latter may fail, and some prompts stay."""
    config, workload = random_groups(seed) if grouped else random_setting(seed)
    rng, n = np.random.default_rng([seed, 5]), len(workload["arrival_ns"])
    if drafted:
        _draft(rng, config, workload)
    if adapted:
        _adapt(rng, config, workload)
    workload["segment_tokens"] = np.maximum(workload["segment_tokens"], 2)  # nothing is read for a single token
    blocks, seqs = config.pop("num_blocks") + 2, config["max_num_seqs"]
    # primes: no step of one engine ends together with one of the other
    config |= {"policy": "fcfs", "step_ns": 2_000_003, "token_ns": 20_011, "context_token_ns": 17}
    config |= {"link_latency_ns": 101 + UNIT * int(rng.integers(0, 40)), "poll": str(rng.choice(["launch", "results"]))}
    config |= {"link_block_ns": int(rng.choice([101, UNIT, 10 * UNIT])), "failure_policy": "recompute"}
    config.setdefault("max_model_len", 2**20)
    for one in "pd":
        config[one] = {
            "num_blocks": int(blocks * rng.choice([1.0, 1.0, 1.3, 4.0])),
            "max_num_seqs": int(rng.choice([seqs, seqs, min(seqs, 8)])),
            "reserve_full_isl": bool(rng.random() < 0.7),
        }
    workload["remote"] = (rng.random(n) < rng.choice([1.0, 1.0, 0.7])).astype(np.int32)
    workload["fails"] = (rng.random(n) < rng.choice([0.0, 0.0, 0.1])).astype(np.int32)
    return config, workload


def random_of(features: set[str], seed: int) -> tuple[dict[str, Any], Columns]:
    """One engine, with a host (`offload`), or a pair (`pd`), and what else is named: `groups`, `lora`, `spec`,
    `interval`; of a pair also `fail`: requests whose KV does not arrive end."""
    named = "groups" in features, "spec" in features, "lora" in features
    if "pd" in features:
        config, workload = random_pairs(seed, *named)
        if "fail" in features:
            n, config["failure_policy"] = len(workload["arrival_ns"]), "fail"
            workload["fails"] = (np.random.default_rng([seed, 7]).random(n) < 0.2).astype(np.int32)
    elif "offload" in features:
        config, workload = random_offloads(seed, *named)
    else:
        config, workload = random_groups(seed) if named[0] else random_setting(seed)
        rng = np.random.default_rng([seed, 6])
        if named[1]:
            _draft(rng, config, workload)
        if named[2]:
            _adapt(rng, config, workload)
    if "interval" in features:
        config["prefill_schedule_interval"] = 2 + seed % 4
    return config, workload
