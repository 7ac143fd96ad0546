"""How long the requests of a benchmark are, and what their prompts share, by its data set."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads import aiperf_results, azure_lengths, files, timed_trace
from prebleexp.workloads.bench_client import Requests
from prebleexp.workloads.blocks import Prompts, private
from prebleexp.workloads.documents import rows_of
from prebleexp.workloads.few_shot import QUESTIONS, random

if TYPE_CHECKING:
    from prebleexp.workloads.vllm_bench import VllmBench


LETTERS = 4
"""of a token, where a file has texts"""
SHORTEST, LONGEST_PROMPT, LONGEST_BOTH = 4, 1024, 2048
"""tokens that the tool keeps of ShareGPT: of prompt and answer at least, of a prompt, of both"""


def requests(of: VllmBench, seed: int) -> Requests:
    """Raises InvalidInput, naming the file, where there is one that does not hold such a data set."""
    return DATASETS[of.dataset_name](of, random(seed, QUESTIONS))


def ratios(given: float | Mapping[str, float]) -> tuple[float, float]:
    """`random_range_ratio` of prompts and of answers, from one number or from {input, output}."""
    return (given["input"], given["output"]) if isinstance(given, Mapping) else (given, given)


def _between(rng: np.random.Generator, mean: int, ratio: float, n: int, least: int = 0) -> Longs:
    """Integers, uniform from mean · (1 - ratio), rounded down, to mean · (1 + ratio), rounded up."""
    low, high = math.floor(mean * (1 - ratio)), math.ceil(mean * (1 + ratio))
    return rng.integers(max(low, least), max(high, least) + 1, n)


def behind_prefixes(prefix: Longs, prefix_len: int | Longs, own: Longs) -> Prompts:
    """Each prompt begins with one of the prefixes, which have `prefix_len` tokens, or each its own number."""
    if np.ndim(prefix_len) == 0 and prefix_len == 0:
        return private(own)
    n, several = len(own), own > 0
    prefixes = int(prefix.max()) + 1
    offsets = np.concatenate([[0], np.cumsum(1 + several)])
    ids, tokens = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int32)
    ids[offsets[:-1]] = prefix
    tokens[offsets[:-1]] = prefix_len if np.ndim(prefix_len) == 0 else np.asarray(prefix_len)[prefix]
    last = offsets[1:][several] - 1
    ids[last], tokens[last] = prefixes + np.arange(n)[several], own[several]
    return Prompts(offsets, ids, tokens)


def _random(of: VllmBench, rng: np.random.Generator) -> Requests:
    of_input, of_output = ratios(of.random_range_ratio)
    n = of.num_prompts
    own = _between(rng, of.random_input_len, of_input, n, 0 if of.random_prefix_len else 1)
    outputs = _between(rng, of.random_output_len, of_output, n, 1)
    group = np.zeros(n, np.int64) if of.random_prefix_len else np.full(n, -1)
    return Requests(behind_prefixes(np.zeros(n, np.int64), of.random_prefix_len, own), group, outputs)


def _grouped(
    of: VllmBench, rng: np.random.Generator, groups: int, each: int, lengths: tuple[int, int, int]
) -> Requests:
    """So many prefixes with so many prompts each, shuffled."""
    prefix_len, own_len, output_len = lengths
    group = np.repeat(np.arange(groups), each)
    if not of.disable_shuffle:
        group = rng.permutation(group)
    n = len(group)
    return Requests(behind_prefixes(group, prefix_len, np.full(n, own_len)), group, np.full(n, output_len, np.int64))


def _prefix_repetition(of: VllmBench, rng: np.random.Generator) -> Requests:
    prefixes = of.prefix_repetition_num_prefixes
    lengths = (of.prefix_repetition_prefix_len, of.prefix_repetition_suffix_len, of.prefix_repetition_output_len)
    return _grouped(of, rng, prefixes, of.num_prompts // prefixes, lengths)


def _gsp(of: VllmBench, rng: np.random.Generator) -> Requests:
    lengths = (of.gsp_system_prompt_len, of.gsp_question_len, of.gsp_output_len)
    return _grouped(of, rng, of.gsp_num_groups, of.gsp_prompts_per_group, lengths)


def _azure_conversations(of: VllmBench, rng: np.random.Generator) -> Requests:
    """Those of ShareGPT's lengths."""
    inputs, outputs = azure_lengths.lengths("conversations")
    kept = _kept(inputs.astype(np.int64), outputs.astype(np.int64))
    rows = rng.choice(np.flatnonzero(kept), of.num_prompts)
    return listed(inputs[rows], outputs[rows])


def _kept(inputs: Longs, outputs: Longs) -> Any:
    short = np.minimum(inputs, outputs) >= SHORTEST
    return short & (inputs <= LONGEST_PROMPT) & (inputs + outputs <= LONGEST_BOTH)


def _sharegpt(of: VllmBench, rng: np.random.Generator) -> Requests:
    """The first two turns of each conversation."""
    try:
        entries = json.loads(files.unpacked(of.dataset_path))
        turns = [one["conversations"][:2] for one in entries if len(one.get("conversations", ())) >= 2]
        texts = [tuple(len(str(turn["value"])) for turn in pair) for pair in turns]
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInput(
            f"{of.dataset_path}: not ShareGPT's JSON, [{{conversations: [{{value: …}}, …]}}]: {error}"
        ) from None
    tokens = np.maximum(np.array(texts, np.int64).reshape(-1, 2) // LETTERS, 1)
    inputs, outputs = tokens[:, 0], tokens[:, 1]
    if of.sharegpt_output_len is not None:
        kept = (inputs >= SHORTEST) & (inputs <= LONGEST_PROMPT)
        outputs = np.full(len(inputs), of.sharegpt_output_len)
        kept &= inputs + outputs <= LONGEST_BOTH
    else:
        kept = _kept(inputs, outputs)
    return sampled(of, rng, inputs[kept], outputs[kept])


def _custom(of: VllmBench, rng: np.random.Generator) -> Requests:
    rows = rows_of(of.dataset_path)
    if "prompt" not in rows:
        raise InvalidInput(
            f"{of.dataset_path}: there is no field prompt; it must be JSON lines with prompt and output_tokens"
        )
    inputs = np.array([max(len(str(one)) // LETTERS, 1) for one in rows.values("prompt")], np.int64)
    if of.custom_output_len == -1:
        outputs = rows.integers("output_tokens", 1)
    else:
        outputs = np.full(len(inputs), of.custom_output_len, np.int64)
    return sampled(of, rng, inputs, outputs)


def _burstgpt(of: VllmBench, rng: np.random.Generator) -> Requests:
    rows = rows_of(of.dataset_path)
    for name in ("Model", "Request tokens", "Response tokens"):
        if name not in rows:
            raise InvalidInput(f"{of.dataset_path}: there is no column {name}; it must be a CSV file of BurstGPT")
    inputs, outputs = rows.integers("Request tokens", 0), rows.integers("Response tokens", 0)
    kept = np.flatnonzero((outputs > 0) & (inputs > 0) & (np.array(list(rows.values("Model"))) == "GPT-4"))
    if not len(kept):
        raise InvalidInput(f"{of.dataset_path}: there are no requests of GPT-4 that were answered")
    chosen = rng.choice(kept, of.num_prompts, replace=of.num_prompts > len(kept))
    return listed(inputs[chosen], outputs[chosen])


def _bench_log(of: VllmBench, rng: np.random.Generator) -> Requests:
    """Those of a result, in its order; when they came if it says so."""
    found = result(of.dataset_path)
    inputs, outputs = (_column(of, found, name) for name in ("input_lens", "output_lens"))
    if len(inputs) != len(outputs):
        raise InvalidInput(f"{of.dataset_path}: output_lens is not valid; it must be a list as long as input_lens")
    served = (inputs > 0) & (outputs > 0)
    if not served.any():
        raise InvalidInput(f"{of.dataset_path}: there are no requests that were served")
    starts, due_s = found.get("start_times"), None
    if isinstance(starts, list) and len(starts) == len(inputs) and of.self_timed:
        waited = found.get("queue_times")
        sent = np.array(starts, np.float64)
        came = sent - np.array(waited, np.float64) if isinstance(waited, list) and len(waited) == len(sent) else sent
        due_s = np.maximum.accumulate(came[served] - came[served].min())
    return listed(inputs[served], outputs[served])._replace(due_s=due_s)


def result(path: str | None) -> dict[str, Any]:
    """The result that a file has, of aiperf's too; of several, one a line, the last. Raises InvalidInput, naming it, if
    it has none."""
    text = files.unpacked(path).decode(errors="replace").strip()
    if lines := aiperf_results.records(text):
        return aiperf_results.of_records(lines)
    for part in (text, text.rpartition("\n")[2]):
        try:
            found = json.loads(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return aiperf_results.of_summary(path, found) or found
    raise InvalidInput(
        f"{path}: not the JSON of a result; write it with vllm bench serve --save-result --save-detailed, or take "
        "aiperf's profile_export.jsonl"
    )


def _column(of: VllmBench, found: Mapping[str, Any], name: str) -> Longs:
    given = found.get(name)
    if not isinstance(given, list) or not all(isinstance(one, int) and 0 <= one < 2**31 for one in given):
        raise InvalidInput(
            f"{of.dataset_path}: {name} is not valid; it must be a list of integers, as of --save-detailed"
        )
    return np.array(given, np.int64)


def listed(inputs: Longs | Ints, outputs: Longs | Ints) -> Requests:
    return Requests(private(inputs.astype(np.int64)), np.full(len(inputs), -1), outputs.astype(np.int64))


def sampled(of: VllmBench, rng: np.random.Generator, inputs: Longs, outputs: Longs) -> Requests:
    """So many of a file's, shuffled; if it has fewer, some again, with the same prompt."""
    if not len(inputs):
        raise InvalidInput(f"{of.dataset_path}: there are no requests of the lengths that the tool takes")
    rows = np.arange(len(inputs)) if of.disable_shuffle else rng.permutation(len(inputs))
    rows = rows[: of.num_prompts]
    if len(rows) < of.num_prompts and not of.no_oversample:
        rows = np.concatenate([rows, rng.choice(rows, of.num_prompts - len(rows))])
    _, ids = np.unique(rows, return_inverse=True)
    prompts = Prompts(np.arange(len(rows) + 1), ids.astype(np.int32), inputs[rows].astype(np.int32))
    return Requests(prompts, np.full(len(rows), -1), outputs[rows])


DATASETS: Mapping[str, Callable[[VllmBench, np.random.Generator], Requests]] = {
    "random": _random,
    "prefix_repetition": _prefix_repetition,
    "generated-shared-prefix": _gsp,
    "azure_conversations": _azure_conversations,
    "sharegpt": _sharegpt,
    "burstgpt": _burstgpt,
    "custom": _custom,
    "timed_trace": timed_trace.requests,
    "bench_log": _bench_log,
}
FROM_FILES = ("sharegpt", "burstgpt", "custom", "timed_trace", "bench_log")
