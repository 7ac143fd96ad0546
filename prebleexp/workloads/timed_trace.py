"""The data set `timed_trace` of `vllm bench serve`: requests of a trace, with hashes for prompts, at its times."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Longs
from prebleexp.workloads import files
from prebleexp.workloads.bench_client import Requests
from prebleexp.workloads.blocks import Prompts, of_blocks, private
from prebleexp.workloads.documents import rows_of
from prebleexp.workloads.reading import FASTEST, Understood, number
from prebleexp.workloads.rows import Rows

if TYPE_CHECKING:
    from prebleexp.workloads.vllm_bench import VllmBench

SLOWEST = 0.05
"""requests a second that are believed"""
LATE_S = 3600.0
"""until a first request comes that is believed"""
SHORT = 1.5
"""a prompt's length may be so many times as long as its hashes reach"""


def requests(of: VllmBench, rng: np.random.Generator) -> Requests:
    """In the file's order; a prompt is as long as its hashes reach. Raises InvalidInput where these reach no farther
    than a part of the lengths, as those of blocks of another size do."""
    rows = _rows(of)
    chunk, hashes = of.timed_trace_chunk_hash_size, of.timed_trace_label_hash_ids
    inputs = rows.integers(of.timed_trace_label_input_length, 1)
    outputs = np.maximum(rows.integers(of.timed_trace_label_output_length, 0), 1)
    prompts = private(inputs)
    if hashes in rows:
        prompts = _chunked(rows, hashes, inputs, chunk)
        reach, asked = int(prompts.tokens.sum(dtype=np.int64)), int(inputs.sum())
        if reach * SHORT < asked:
            raise InvalidInput(
                f"{of.dataset_path}: timed_trace_chunk_hash_size={chunk} is not valid; {hashes} would have {reach:,} "
                f"tokens of the {asked:,} of {of.timed_trace_label_input_length}: say how many tokens a hash stands "
                "for (512 in Mooncake's traces)"
            )
    return Requests(prompts, np.full(len(inputs), -1), outputs, _due_s(of, rows) if of.is_self_timed else None)


def understood(of: VllmBench) -> Understood:
    """What its times were taken for, and what about that is improbable."""
    rows = _rows(of)
    due_s, name, size = _due_s(of, rows), of.timed_trace_label_timestamp, of.timed_trace_sec_multiplier
    time = f"{name}, units of {number(size)} s (timed_trace_sec_multiplier)"
    span_s, doubts = float(due_s[-1] - due_s[0]), list[str]()
    rate = f"{number(len(rows) / span_s)} requests/s" if span_s else "at once"
    if of.is_self_timed:
        cure = "timed_trace_sec_multiplier=0.001 reads milliseconds"
        if len(rows) > 1 and not (span_s and SLOWEST <= len(rows) / span_s <= FASTEST):
            doubts.append(f"{rate} are improbable; {cure}")
        if due_s[0] > LATE_S:
            doubts.append(
                f"the first request comes after {number(float(due_s[0]))} s; times count from 0, not from 1970"
            )
    facts = {"time": time, "span": f"{number(span_s)} s", "rate": rate, "prompt": of.timed_trace_label_input_length}
    facts |= {"output": of.timed_trace_label_output_length}
    line = f"{of.dataset_path}: {len(rows):,} requests in {number(span_s)} s ({rate}); time: {time}"
    return Understood(tuple(facts.items()), line, tuple(doubts))


def _rows(of: VllmBench) -> Rows:
    names = (of.timed_trace_label_timestamp, of.timed_trace_label_input_length, of.timed_trace_label_output_length)
    return _read(of.dataset_path, files.digest(of.dataset_path), names, of.num_prompts)


@lru_cache(maxsize=2)
def _read(path: str | None, digest: str, names: tuple[str, ...], most: int) -> Rows:
    """Once for each contents of a file, of which cells ask what it was taken for and then draw."""
    rows = rows_of(path)
    for name in names:
        if name not in rows:
            raise InvalidInput(
                f"{path}: there is no field {name}; say which stands for it, as workload.timed_trace_label_timestamp="
            )
    return rows.taken(np.arange(min(len(rows), most)))


def _due_s(of: VllmBench, rows: Rows) -> Floats:
    times = np.maximum.accumulate(rows.numbers(of.timed_trace_label_timestamp) * of.timed_trace_sec_multiplier)
    found: Floats = np.maximum(times, 0.0)
    return found


def _chunked(rows: Rows, hashes: str, inputs: Longs, chunk: int) -> Prompts:
    offsets, flat = rows.lists(hashes, "a list of integers, or of texts")
    counts = np.minimum(np.diff(offsets), -(-inputs // chunk))
    if not counts.all():
        raise rows.wrong(
            int(np.flatnonzero(counts == 0)[0]), f"{hashes} has no elements; the tool would send no prompt"
        )
    into = np.concatenate([[0], np.cumsum(counts)])
    at = np.arange(into[-1]) + np.repeat(offsets[:-1] - into[:-1], counts)
    sizes = np.full(into[-1], chunk, np.int64)
    sizes[into[1:] - 1] = np.minimum(inputs - chunk * (counts - 1), chunk)
    return of_blocks(into, flat[at], sizes)
