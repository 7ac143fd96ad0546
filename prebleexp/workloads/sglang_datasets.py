"""How long the requests of SGLang's benchmarks are, and what their prompts share, by data set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Longs
from prebleexp.workloads import azure_lengths, files
from prebleexp.workloads.bench_client import Requests
from prebleexp.workloads.vllm_datasets import LETTERS, behind_prefixes, listed

if TYPE_CHECKING:
    from prebleexp.workloads.sglang_bench import SglangBench

SHORTEST = 2
"""tokens of a prompt and of an answer that the tool keeps"""


def _lengths(rng: np.random.Generator, most: int, ratio: float, n: int) -> Longs:
    """Integers, uniform from most · ratio, rounded down and at least 1, to most; 0 if that is the most."""
    return rng.integers(max(int(most * ratio), 1), most + 1, n) if most > 0 else np.zeros(n, np.int64)


def _random(of: SglangBench, rng: np.random.Generator) -> Requests:
    ratio, n = of.random_range_ratio, of.num_prompts
    inputs = _lengths(rng, of.random_input_len, ratio, n)
    return listed(inputs, _lengths(rng, of.random_output_len, ratio, n))


def _generated_shared_prefix(of: SglangBench, rng: np.random.Generator) -> Requests:
    groups, each, ratio = of.gsp_num_groups, of.gsp_prompts_per_group, of.gsp_range_ratio
    n = groups * each
    prefixes = _lengths(rng, of.gsp_system_prompt_len, ratio, groups)
    own, outputs = _lengths(rng, of.gsp_question_len, ratio, n), _lengths(rng, of.gsp_output_len, ratio, n)
    group = np.repeat(np.arange(groups), each)
    if of.gsp_group_distribution == "zipf":
        weights = 1 / np.arange(1, groups + 1) ** float(of.gsp_zipf_alpha or 1)
        group = rng.choice(groups, n, p=weights / weights.sum())
    order = np.arange(n) if of.gsp_ordered else rng.permutation(n)
    group = group[order]
    lengths = 0 if not prefixes.any() else prefixes
    return Requests(behind_prefixes(group, lengths, own[order]), group, outputs[order])


def _conversations(of: SglangBench, rng: np.random.Generator) -> Requests:
    """The first two turns of each of a file's conversations, shuffled."""
    texts = []
    for one in _entries(of.dataset_path):
        turns = (one.get("conversations") or one.get("conversation") or []) if isinstance(one, Mapping) else None
        if not isinstance(turns, list) or not all(isinstance(turn, Mapping) for turn in turns[:2]):
            raise InvalidInput(
                f"{of.dataset_path}: conversations is not valid; it must be a list of objects with value or content"
            )
        if len(turns) >= 2:
            texts.append([len(str(turn.get("content", turn.get("value", "")))) for turn in turns[:2]])
    tokens = np.maximum(np.array(texts, np.int64).reshape(-1, 2) // LETTERS, 1)
    return _kept(of, rng.permutation(tokens), of.num_prompts)


def _entries(path: str | None) -> list[Any]:
    """Of a JSON array, or of JSON lines, of which those that are no JSON are passed over, as the tool does."""
    text = files.unpacked(path).decode(errors="replace")
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        found = []
        for line in text.splitlines():
            try:
                found.append(json.loads(line))
            except (ValueError, RecursionError):
                continue
        return found
    return whole if isinstance(whole, list) else [whole]


def _kept(of: SglangBench, tokens: Longs, most: int) -> Requests:
    """The first so many of those whose lengths the tool takes. `tokens`: (n, 2) of prompt and answer."""
    inputs, outputs = tokens[:, 0], tokens[:, 1]
    if of.sharegpt_output_len is not None:
        outputs = np.full(len(inputs), of.sharegpt_output_len)
    kept = (inputs >= SHORTEST) & (outputs >= SHORTEST)
    if of.sharegpt_context_len is not None:
        kept &= inputs + outputs <= of.sharegpt_context_len
    rows = np.flatnonzero(kept)[:most]
    if not len(rows):
        where = of.dataset_path or of.dataset_name
        raise InvalidInput(f"{where}: there are no requests of the lengths that the tool takes")
    return listed(inputs[rows], outputs[rows])


def _azure_conversations(of: SglangBench, rng: np.random.Generator) -> Requests:
    """As many as are wanted of Azure's conversations, at random."""
    inputs, outputs = azure_lengths.lengths("conversations")
    tokens = np.stack([inputs, outputs], axis=1).astype(np.int64)
    made = _kept(of, tokens, len(tokens))
    rows = rng.choice(len(made.outputs), of.num_prompts)
    return listed(made.prompts.tokens[rows], made.outputs[rows])


DATASETS: Mapping[str, Callable[[SglangBench, np.random.Generator], Requests]] = {
    "random": _random,
    "random-ids": _random,
    "generated-shared-prefix": _generated_shared_prefix,
    "azure_conversations": _azure_conversations,
    "sharegpt": _conversations,
    "custom": _conversations,
}
FROM_FILES = ("sharegpt", "custom")
