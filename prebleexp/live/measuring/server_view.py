"""What engines count themselves: the difference of their `/metrics` (vLLM's names) before and after a measurement."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from prebleexp.live.http.calls import Failed
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import Origin

LINE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{.*\})?\s+(\S+)(?:\s+\d+)?$")
TOTALS = {
    "preemptions": "vllm:num_preemptions_total",
    "queried_tokens": "vllm:prefix_cache_queries_total",
    "hit_tokens": "vllm:prefix_cache_hits_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "output_tokens": "vllm:generation_tokens_total",
    "written": "prebleexp:late_seconds_count",
    "written_late": "prebleexp:late_tokens_total",
}
"""what the mock counts of itself is the last two"""
TIMES = {
    "queue": "vllm:request_queue_time_seconds",
    "prefill": "vllm:request_prefill_time_seconds",
    "decode": "vllm:request_decode_time_seconds",
}
"""histograms, of whose sums and counts means are made"""


class View(NamedTuple):
    """Of all engines together, over the measurement."""

    totals: Mapping[str, float]
    """of `TOTALS` those that are counted"""
    means_s: Mapping[str, float]
    """of `TIMES` likewise: means over their requests"""


async def scrape(client: Client, origins: Sequence[Origin]) -> dict[str, float]:
    """Sums over all engines by name, without labels; of one that has no metrics, nothing."""
    found: dict[str, float] = {}
    for texts in await asyncio.gather(*(_text(client, one) for one in origins)):
        for name, value in parsed(texts).items():
            found[name] = found.get(name, 0.0) + value
    return found


def parsed(text: str) -> dict[str, float]:
    """Of Prometheus's text format the sums over labels, by name."""
    found: dict[str, float] = {}
    for match in filter(None, map(LINE.match, text.splitlines())):
        try:
            found[match[1]] = found.get(match[1], 0.0) + float(match[2])
        except ValueError:
            continue
    return found


def between(before: Mapping[str, float], after: Mapping[str, float]) -> View:
    """A counter that went back was started anew, and is left out."""

    def more(name: str) -> float | None:
        value = after[name] - before.get(name, 0.0) if name in after else None
        return value if value is None or value >= 0 else None

    totals = {name: value for name, called in TOTALS.items() if (value := more(called)) is not None}
    means_s = {}
    for name, called in TIMES.items():
        sum_s, count = more(f"{called}_sum"), more(f"{called}_count")
        if sum_s is not None and count:
            means_s[name] = sum_s / count
    return View(totals, means_s)


async def _text(client: Client, origin: Origin) -> str:
    try:
        reply = await client.fetch(origin, "/metrics")
    except Failed:
        return ""
    return reply.body.decode("utf-8", "replace") if reply.status == 200 else ""
