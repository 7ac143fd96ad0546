"""Results of `vllm bench serve` and SGLang's `bench_serving` as stages, and what was asked in each: so many requests of
such lengths, at a rate, by clients in turn or all at once. Prompts are taken to share nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from prebleexp.calibration.ladder import TOKENS, Rung
from prebleexp.checks import is_number
from prebleexp.errors import InvalidInput, significant
from prebleexp.hardware import bench_results
from prebleexp.hardware.bench_results import Result
from prebleexp.sim.types import Ints, Workload
from prebleexp.workloads.bench_log import STARTS
from prebleexp.workloads.blocks import private
from prebleexp.workloads.bursty import ENDLESS, arrivals_s
from prebleexp.workloads.sessions import Sessions

ARRIVALS, LENGTHS = range(40, 42)
"""random streams"""
MOST_BUSY = 0.5
"""of a cap on requests at a time, on average: with more of them it held back some, and nobody says how long"""
MOST_FAILED = 0.05


def rung(one: Result) -> Rung:
    """What was measured. Raises InvalidInput, naming the result, where the cap, failures or a missing rate leave open
    what was asked, and for numbers that are not valid."""
    at, result = one
    failed, prompts = result.get("failed", 0), result.get("num_prompts", 0)
    if is_number(failed) and is_number(prompts) and failed > MOST_FAILED * prompts:
        raise InvalidInput(
            f"{at}: {failed:,g} of {prompts:,g} requests failed, and what they took of the server is not known; run it "
            "at a lower rate"
        )
    users, rate = bench_results.clients(result), bench_results.rate(result)
    if rate is None and users is None and result.get("request_rate") not in ENDLESS:
        raise InvalidInput(
            f"{at}: it has neither request_rate nor max_concurrency; add the request_rate that was asked for"
        )
    if rate is not None and not rate > 0:
        raise InvalidInput(f"{at}: request_rate={rate:g} is not valid; it must be a number above 0, or inf")
    means = {"mean_ttft_ms": "ttft_mean_s", "mean_tpot_ms": "tpot_mean_s"}
    seen = {name: bench_results.number(at, result, key) / 1e3 for key, name in means.items()}
    latency = bench_results.latency_s(result)
    seen |= {} if latency is None else {"latency_mean_s": latency}
    seen |= {TOKENS: bench_results.number(at, result, "output_throughput")} if "output_throughput" in result else {}
    cap, busy = result.get("max_concurrency"), _busy(at, result, seen)
    if rate is not None and users is None and is_number(cap) and busy > MOST_BUSY * cap:
        raise InvalidInput(
            f"{at}: request_rate={rate:g} under max_concurrency={cap:g}, and {significant(busy)} requests were there "
            "on average: the cap held some back, and how long is not known; run it without --max-concurrency, or at "
            "--request-rate inf"
        )
    if users is not None:
        return Rung(f"{users:g} clients", math.inf, seen)
    return Rung("all at once", math.inf, seen) if rate is None else Rung(f"{rate:g}/s", rate, seen)


def _busy(at: str, result: Mapping[str, Any], seen: Mapping[str, float]) -> float:
    """Requests at a time, on average."""
    known = bench_results.busy(result)
    if known is not None:
        return known
    requests = bench_results.requests(at, result)
    output = bench_results.number(at, result, "total_output_tokens") / requests
    served = result.get("request_throughput")
    through = served if is_number(served) else seen.get(TOKENS, 0.0) / output
    return through * (seen["ttft_mean_s"] + (output - 1) * seen["tpot_mean_s"])


def stream(one: Result, seed: int) -> Workload:
    """What was asked: with its lengths and starts where the result lists them, else of its mean lengths (SGLang's
    random_range_ratio says how they vary; without it all are the mean), and with gaps of its burstiness."""
    at, result = one
    prompt, output, starts = _lists(at, result, seed)
    n = len(prompt)
    users = bench_results.clients(result)
    if users is not None:
        return _in_turn(prompt, output, int(users))
    rate, shape = bench_results.rate(result), result.get("burstiness", 1.0)
    if starts is not None:
        arrivals = starts - starts[0]
    elif rate is None:
        arrivals = np.zeros(n)
    else:
        shape = bench_results.number(at, {"burstiness": shape}, "burstiness")
        arrivals = arrivals_s(np.random.default_rng([seed, ARRIVALS]), n, rate, shape)
    prompts = private(prompt.astype(np.int64))
    return Workload(
        arrival_s=arrivals,
        prompt_tokens=prompt,
        output_tokens=output,
        max_new_tokens=output,
        prefix_group=np.full(n, -1),
        segment_offsets=prompts.offsets,
        segment_ids=prompts.ids,
        segment_tokens=prompts.tokens,
    )


def _lists(at: str, result: Mapping[str, Any], seed: int) -> tuple[Ints, Ints, Any]:
    """Prompt and output tokens of each request that was answered, in order of their starts where these are known."""
    given = [result.get(name) for name in ("input_lens", "output_lens")]
    if all(isinstance(one, list) and one for one in given) and len(given[0]) == len(given[1]):  # type: ignore[arg-type]
        try:
            prompt, output = (np.array(one, np.float64) for one in given)
            listed = next((result[name] for name in STARTS if isinstance(result.get(name), list)), None)
            starts = np.array(listed, np.float64) if listed is not None and len(listed) == len(prompt) else None
        except (TypeError, ValueError):
            raise InvalidInput(f"{at}: input_lens, output_lens or starts are not valid; they must be numbers") from None
        kept = np.flatnonzero((output > 0) & (prompt > 0))
        if not len(kept):
            raise InvalidInput(f"{at}: there are no requests that were served")
        if starts is not None:
            kept = kept[np.argsort(starts[kept], kind="stable")]
        whole = (prompt[kept].astype(np.int32), output[kept].astype(np.int32))
        return (*whole, None if starts is None else starts[kept])
    n = round(bench_results.requests(at, result))
    totals = (bench_results.number(at, result, f"total_{one}_tokens") for one in ("input", "output"))
    ratio = result.get("random_range_ratio") if result.get("dataset_name") in ("random", "random-ids") else None
    least = min(max(float(ratio), 0.0), 1.0) if is_number(ratio) else 1.0
    drawn = np.random.default_rng([seed, LENGTHS])
    lengths = []
    for total in totals:
        longest = 2 * total / n / (1 + least)
        lengths.append(np.maximum(np.rint(drawn.uniform(least * longest, longest, n)), 1).astype(np.int32))
    return lengths[0], lengths[1], None


def _in_turn(prompt: Ints, output: Ints, users: int) -> Workload:
    """Each request comes when the one so many before it is answered."""
    made = Sessions()
    lanes = [made.begin() for _ in range(min(users, len(prompt)))]
    before: dict[int, list[int]] = {}
    for i, (new, tokens) in enumerate(zip(prompt.tolist(), output.tolist(), strict=True)):
        lane = lanes[i % len(lanes)]
        before[lane] = [made.request(lane, new, tokens, after=before.get(lane, []))]
    return made.workload()
