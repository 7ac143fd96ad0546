"""Why a measured benchmark and a simulated one differ: what a request takes, in parts, on both sides.

The parts add up to the mean latency. A first token is what no length of a prompt explains (the host), what each token
of the prompt adds (prefill), and the rest, which is waiting for others (queue). Host and prefill are told apart by the
quickest first tokens of prompts of several lengths. The further tokens are the usual gap, the median, times their
number (decode), and what gaps take beyond it, while others' prompts are computed (stalls).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from prebleexp.checks import is_number
from prebleexp.errors import significant
from prebleexp.sim.types import Floats
from prebleexp.vllm_bench.known import UNKNOWN_ERROR, Judged
from prebleexp.vllm_bench.served import Served

LISTS = ("input_lens", "output_lens", "ttfts", "itls")
QUICK = 0.1
"""the share of first tokens of a length that are taken not to wait"""
GROUPS = 8
"""of lengths"""
LEAST_OF_GROUP = 8
"""requests"""
APART = 1.5
"""times the short prompts the long ones must be, for host and prefill to be told apart"""
NAMES = {
    "host": "the host, before the engine's queue",
    "prefill": "prefill of the prompt",
    "host and prefill": "the host and prefill of the prompt",
    "queue": "waiting for others before the first token",
    "first token": "the first token: host, prefill and queue",
    "decode": "decoding, by the usual gap between tokens",
    "stalls": "gaps beyond the usual one, while others' prompts are computed",
}
CAUSES = {
    "host": "the host",
    "prefill": "prefill, of the own prompt and of others'",
    "host and prefill": "the host or prefill of the own prompt",
    "queue": "the queue",
    "first token": "the first token",
    "decode": "decoding",
}
AFTER = ("decode", "stalls")
"""parts that come after the first token"""
OF_CAUSE = {"stalls": "prefill"}
"""of parts that are not called as their cause"""
OF_COSTS = ("host", "prefill", "host and prefill", "decode")
"""causes that a calibration changes"""
OF_PROMPTS = ("prefill", "host and prefill")
"""causes that a shared prefix makes shorter, too"""


class Part(NamedTuple):
    """Milliseconds of a request, on average."""

    name: str
    """of `NAMES`"""
    measured: float
    simulated: float
    evidence: str
    """what that is made of, on both sides"""

    @property
    def more(self) -> float:
        """By how much the simulated part is longer than the measured one, in ms."""
        return self.simulated - self.measured


@dataclass(frozen=True)
class Side:
    """What one of both says, in seconds."""

    ttft_s: float
    """mean"""
    gaps: float
    """a request"""
    gap_s: float
    """median"""
    mean_gap_s: float
    of_each: tuple[Floats, Floats] | None = None
    """(n,) tokens of each prompt, and its time to first token"""

    @property
    def latency_s(self) -> float:
        return self.ttft_s + self.gaps * self.mean_gap_s


def of_fields(fields: Mapping[str, Any]) -> Side | None:
    """Of a measured file; None if it lacks what that takes."""
    lists = [fields.get(name) for name in LISTS]
    if all(isinstance(one, list) for one in lists) and len({len(one or ()) for one in lists}) == 1:
        inputs, outputs, ttfts, itls = (one or [] for one in lists)
        errors = fields.get("errors") or [""] * len(inputs)
        rows = [i for i, many in enumerate(outputs) if many and not errors[i]]
        if rows:
            return _of_lists(*([one[i] for i in rows] for one in (inputs, ttfts, itls)))
    names = ("mean_ttft_ms", "mean_tpot_ms", "total_output_tokens", "completed")
    if not all(is_number(fields.get(name)) for name in names):
        return None
    gap = fields["mean_tpot_ms"] / 1e3
    median = fields.get("median_itl_ms")
    gaps = max(fields["total_output_tokens"] / fields["completed"] - 1, 0.0)
    return Side(fields["mean_ttft_ms"] / 1e3, gaps, median / 1e3 if is_number(median) else gap, gap)


def of_served(seen: Served, *, with_each: bool) -> Side:
    """Of a simulated one; `with_each` where the other side has each request, too."""
    ok = np.flatnonzero(seen.ok)
    found = _of_lists(seen.input_lens[ok].tolist(), seen.ttft_s[ok].tolist(), [seen.gaps_s[i] for i in ok])
    if with_each:
        return found
    tpot = [float(np.mean(seen.gaps_s[i])) for i in ok if len(seen.gaps_s[i])]
    return Side(found.ttft_s, found.gaps, found.gap_s, float(np.mean(tpot)) if tpot else 0.0)


def _of_lists(inputs: Sequence[float], ttfts: Sequence[float], itls: Sequence[Sequence[float]]) -> Side:
    gaps = np.concatenate([np.asarray(one, float) for one in itls]) if itls else np.zeros(0)
    median, mean = (float(np.median(gaps)), float(np.mean(gaps))) if len(gaps) else (0.0, 0.0)
    first = np.asarray(ttfts, float)
    return Side(float(first.mean()), len(gaps) / len(first), median, mean, (np.asarray(inputs, float), first))


def parts(measured: Side, simulated: Side) -> list[Part]:
    """In the order in which a request has them."""
    found = _first(measured, simulated)
    sides = (measured, simulated)
    usual = [one.gaps * one.gap_s for one in sides]
    rest = [one.gaps * (one.mean_gap_s - one.gap_s) for one in sides]
    found.append(_part("decode", usual, [_ms(one.gap_s * 1e3) for one in sides], "the median gap is"))
    found.append(_part("stalls", rest, [_ms(one.mean_gap_s * 1e3) for one in sides], "the mean gap is"))
    return found


def _first(measured: Side, simulated: Side) -> list[Part]:
    sides = (measured, simulated)
    if measured.of_each is None or simulated.of_each is None:
        said = [_ms(one.ttft_s * 1e3) for one in sides]
        return [_part("first token", [one.ttft_s for one in sides], said, "the mean time to it is")]
    lines = [_line(*one.of_each) for one in sides if one.of_each is not None]
    tokens = float(measured.of_each[0].mean())
    quick = [fixed + (each or 0.0) * tokens for fixed, each in lines]
    waits = [one.ttft_s - of for one, of in zip(sides, quick, strict=True)]
    queue = _part(
        "queue", waits, [_ms(one * 1e3) for one in waits], "beyond what the quickest tenth takes, a first token waits"
    )
    if any(each is None for _, each in lines):
        said = [_ms(one * 1e3) for one in quick]
        return [_part("host and prefill", quick, said, "the quickest tenth of first tokens take"), queue]
    fixed = [one for one, _ in lines]
    each = [(one or 0.0) * tokens for _, one in lines]
    return [
        _part("host", fixed, [_ms(one * 1e3) for one in fixed], "the quickest first tokens of no prompt take"),
        _part("prefill", each, [f"{significant((one or 0) * 1e6)} µs" for _, one in lines], "a token of a prompt adds"),
        queue,
    ]


def _part(name: str, seconds: Sequence[float], said: Sequence[str], how: str) -> Part:
    measured, simulated = (one * 1e3 for one in seconds)
    return Part(name, measured, simulated, f"{how} {said[0]} measured, and {said[1]} simulated")


def _line(tokens: Floats, ttft_s: Floats) -> tuple[float, float | None]:
    """Seconds of the quickest first tokens: those of no prompt, and of each token more. None where prompts are of too
    few lengths to tell: then the first is of all."""
    order = np.argsort(tokens, kind="stable")
    count = min(GROUPS, len(order) // LEAST_OF_GROUP)
    if count >= 2:
        groups = np.array_split(order, count)
        x = np.array([tokens[one].mean() for one in groups])
        y = np.array([np.quantile(ttft_s[one], QUICK) for one in groups])
        if x[-1] >= APART * x[0]:
            slope = max(float(np.polyfit(x, y, 1)[0]), 0.0)
            fixed = float(np.mean(y - slope * x))
            if fixed >= 0:
                return fixed, slope
            return 0.0, float((x * y).sum() / (x * x).sum())
    return float(np.quantile(ttft_s, QUICK)), None


def verdict(found: Sequence[Part], times: Sequence[Judged] = ()) -> tuple[str | None, str]:
    """The likely cause, of `CAUSES`, or None where both agree; and the sentence that says it. With `times` that were
    judged, TTFT and TPOT, the cause is looked for in what needs one."""
    measured, simulated = (sum(getattr(one, side) for one in found) for side in ("measured", "simulated"))
    both = f"a request takes {_ms(measured)} measured, and {_ms(simulated)} simulated"
    parts_of = list(found)
    if times:
        beyond = {one.name for one in times if one.needs_cause}
        if not beyond:
            return None, f"they agree: {both}"
        parts_of = [one for one in found if ("TPOT" if one.name in AFTER else "TTFT") in beyond]
    of: dict[str, list[Part]] = {}
    for one in parts_of:
        of.setdefault(OF_CAUSE.get(one.name, one.name), []).append(one)
    more = {name: sum(one.more for one in parts) for name, parts in of.items()}
    cause = max(more, key=lambda name: abs(more[name]))
    if not times and max(abs(simulated - measured), abs(more[cause])) <= UNKNOWN_ERROR * measured:
        return None, f"they agree: {both}"
    part = max(of[cause], key=lambda one: abs(one.more))
    other = f"{_ms(abs(more[cause]))} {'more' if more[cause] > 0 else 'less'}"
    return cause, f"{both}; the likely cause is {CAUSES[cause]}, with {other} in the simulation: {part.evidence}"


def _ms(milliseconds: float) -> str:
    """Of three digits, so that 3.30 s stands beside 3.00 s."""
    if milliseconds < 1000:
        return f"{milliseconds:.3g} ms"
    return f"{milliseconds / 1e3:#.3g}".rstrip(".") + " s"
