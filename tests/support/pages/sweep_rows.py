"""The rows of a made-up sweep: GPU counts x request rates x policies x seeds, with latencies of a plausible shape."""

from __future__ import annotations

import math
import random
from itertools import product

from prebleexp.report.page import Sweep
from prebleexp.report.summary import Row

POLICIES = {"lor": 1.0, "round_robin": 1.25, "random": 1.6}
RATES = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

SWEEP = Sweep(
    name="fig1a",
    title="Average normalised latency against request rate",
    command="prebleexp -m sweep=fig1a gpus=1,2,4,8 rps=2,4,8,16,32,64,128,256 policy=lor,round_robin,random",
    configuration="gpus: 8\nrps: 64\npolicy:\n  _target_: prebleexp.policies.lor.Lor\n",
    axes=("gpus", "rps", "policy"),
)


def rows(
    gpus: tuple[int, ...] = (1, 2, 4, 8),
    rates: tuple[float, ...] = RATES,
    policies: tuple[str, ...] = tuple(POLICIES),
    seeds: int = 10,
) -> list[Row]:
    return [_row(*at) for at in product(gpus, rates, policies, range(seeds))]


def part_rows(seeds: int = 3) -> list[Row]:
    """Rows of a sweep of several parts: two variants of three lines."""
    lines = {"lor": "LOR", "round_robin": "PREBLE", "random": "length-aware PREBLE"}
    found = rows((4, 8, 16), (32.0, 64.0, 128.0), tuple(lines), seeds)
    return [
        {**row, "line": lines[str(row["policy"])], "variant": variant}
        for row in found
        for variant in ("as released", "as described")
    ]


def _row(gpus: int, rps: float, policy: str, seed: int) -> Row:
    noise = random.Random(f"{gpus} {rps} {policy} {seed}")
    load = rps / (20 * gpus)
    latency = 0.02 * POLICIES.get(policy, 1.1) * (1 + load + max(0.0, load - 1) ** 2) * math.exp(noise.gauss(0, 0.06))
    requests = round(rps * 30)
    return {
        "key": f"{gpus}-{rps}-{policy}-{seed}",
        "gpus": gpus,
        "rps": rps,
        "duration_s": 30.0,
        "horizon": "drain",
        "seed": seed,
        "policy": policy,
        "workload": "react",
        "n_requests": requests,
        "n_finished": requests if load < 2 else round(requests * 0.8),
        "norm_latency_mean_s": latency,
        "ttft_p99_s": latency * 9,
        "hit_ratio": 0.6 / (1 + load),
        "seconds": 0.01,
    }
