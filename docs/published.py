"""Hold a published routing experiment against simulation: python docs/published.py [STREAMS]

llm-d's guide `precise-prefix-cache-routing` (llm-d/llm-d, read in August 2026; Apache-2.0): 8 replicas of Qwen3-32B,
each on two H100, vLLM, 150 groups of 5 prompts (6,000 tokens of a group, 7,584 as served), 1,000 output tokens, of
which the client counts 937. Poisson arrivals by stages; each is simulated alone, after every prompt was served once.
Nothing of it is fitted. Writes the table of docs/validation.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import mean, median

import numpy as np

import prebleexp

PAGE = Path(__file__).parent / "validation.md"
BEGIN, END = "<!-- a published routing experiment: python docs/published.py -->\n", "<!-- end of it -->\n"
ARMS = {"round robin": {"policy": "round_robin"}, "precise": {"policy": "llmd", "policy.scorers.no-hit-lru-scorer": 2}}
PUBLISHED = {  # requests/s: seconds, and output tokens/s of each arm
    3: (20, 1797, 1707),
    10: (20, 4215, 4904),
    15: (20, 5381, 6887),
    20: (38, 6205, 11224),
    22: (34, 5517, 11980),
    25: (30, 5965, 12548),
    30: (25, 5702, 13507),
    35: (21, 5890, 13803),
    40: (38, 6336, 15593),
    43: (36, 6588, 15612),
    46: (33, 6459, 15462),
    49: (30, 6265, 15607),
    52: (29, 6303, 15728),
    55: (27, 6290, 15612),
    57: (26, 6089, 15667),
    60: (25, 6551, 15733),
}
GROUPS, PROMPTS, SYSTEM, PROMPT, OUTPUT, COUNTED = 150, 5, 6000, 7584, 1000, 937
BLOCK = 16
WARM_RPS, PAUSE_S = 8.0, 100.0
CLUSTER = {
    "gpus": 8,
    "hardware": "composed",
    "hardware/gpu": "h100",
    "hardware/model": "qwen3_32b",
    "hardware.tensor_parallel": 2,
    "hardware.utilisation": 0.95,
    "engine": "vllm",
    "engine.block_size": 64,
    "workload": "bailian",
    "workload.load": "recorded",
    "horizon": "drain",
    "duration_s": 1e5,
}


def stage(path: Path, rate: int, seed: int) -> float:
    """Write its requests as a trace; returns when it begins."""
    rng = np.random.default_rng(seed)
    own = (PROMPT - SYSTEM) // BLOCK
    first = GROUPS * SYSTEM // BLOCK
    order = rng.permutation(GROUPS * PROMPTS)
    warm = np.arange(1, len(order) + 1) / WARM_RPS
    begins = float(warm[-1] + PAUSE_S)
    times = begins + np.cumsum(rng.exponential(1 / rate, rate * PUBLISHED[rate][0]))
    with path.open("w", encoding="utf-8") as file:
        for row, at in enumerate([*warm, *times]):
            prompt = int(order[row % len(order)])
            group = np.arange(SYSTEM // BLOCK) + prompt // PROMPTS * (SYSTEM // BLOCK)
            hashes = [*group.tolist(), *range(first + prompt * own, first + (prompt + 1) * own)]
            request = {"chat_id": row, "parent_chat_id": -1, "timestamp": float(at), "input_length": PROMPT}
            request |= {
                "output_length": 1 if row < len(order) else OUTPUT,
                "hash_ids": hashes,
                "type": "text",
                "turn": 1,
            }
            file.write(json.dumps(request) + "\n")
    return begins


def tokens_per_s(arm: str, rate: int, seed: int, folder: Path) -> float:
    """All tokens of the stage that the client counts, over the time from its first arrival to its last finish."""
    path = folder / f"{rate}_{seed}.jsonl"
    begins = stage(path, rate, seed)
    run = prebleexp.run(**CLUSTER, **ARMS[arm], **{"workload.path": str(path)}, cache_dir=str(folder / "cache"))
    of = run.requests[run.requests.arrival_s >= begins]
    return float(len(of) * COUNTED / ((of.arrival_s + of.latency_s).max() - of.arrival_s.min()))


def main(streams: int) -> None:
    lines = [
        "| requests/s | round robin: published | simulated | precise: published | simulated | gain: published | simulated |"
    ]
    lines.append("| ---: |" + " ---: |" * 6)
    errors: dict[str, list[float]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as name:
        for rate, (_, *published) in PUBLISHED.items():
            made = [mean(tokens_per_s(arm, rate, seed, Path(name)) for seed in range(streams)) for arm in ARMS]
            shown = []
            for arm, said, found in zip(ARMS, published, made, strict=True):
                errors[arm].append(abs(found / said - 1))
                shown += [f"{said:,}", f"{found:,.0f} ({100 * (found / said - 1):+.0f} %)"]
            gains = [f"{published[1] / published[0]:.2f}", f"{made[1] / made[0]:.2f}"]
            lines.append(f"| {rate} | {' | '.join(shown + gains)} |")
    off = "; ".join(
        f"{arm} {100 * median(of):.1f} / {100 * float(np.quantile(of, 0.9)):.1f} %" for arm, of in errors.items()
    )
    text = f"|simulated / published − 1|, median / 90th percentile over the stages: {off} ({streams} streams of requests).\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(
        before + BEGIN + text + "\n" + "\n".join(lines) + "\n" + END + rest.partition(END)[2], encoding="utf-8"
    )
    print(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
