"""What a loader took a file for, in words that people can contradict."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from prebleexp.errors import significant
from prebleexp.sim.types import Floats
from prebleexp.workloads.trace import Span, Trace

SLOWEST, FASTEST = 0.01, 1000.0
"""requests a second, between which a recording is believed"""
LONGEST = 2_000_000
"""tokens of a prompt that is believed"""
QUICKEST_S = 0.0005
"""no server generates faster a token"""
LONELY = 0.95
"""of a recording, in which nothing comes, is hardly believed"""
OVERLAP = 0.2
"""of the turns of sessions, so many may come before the answer before them can have been there"""
LEAST_REGULAR, MINUTE_S = 5, 60.0
"""so many that come by the minute, or by more, are hardly requests"""
LEAST_ON_STEPS, STEP_S = 8, 5.0
"""nor so many that come at whole multiples of so many seconds, or more"""
THOUGHT_S = 3_600.0
"""a typical pause of a tool, or of who thinks, that is believed"""
TIMES = ("latency", "first token", "think time")
"""what the times of a trace are called"""
FAR_BELOW = 0.5
"""of what the recorder's cache found, what prompts share here is doubted below"""
PAUSE_S = 7 * 86_400.0
"""a typical pause between turns that is believed"""


@dataclass(frozen=True)
class Understood:
    """Of a file: what it was taken for, and what about that is improbable."""

    facts: tuple[tuple[str, str], ...]
    """(of what, in words), in the order in which people read them"""
    line: str
    """all that matters, in one"""
    doubts: tuple[str, ...]
    """sentences"""
    unshared: str = ""
    """the one of these that says that prompts share nothing, or far less than they once did or turns of sessions do"""
    found_share: float = 0.0
    """of the prompts' tokens, found in the recorder's cache; 0: nothing, or it does not say"""


def understood(path: str, trace: Trace) -> Understood:
    """What is said of a trace that was read of a file."""
    read, n = trace.reading, len(trace)
    of = "sessions" if trace.closed else "requests"
    starts = _starts(trace)
    span_s = float(starts.max()) if trace.clocked else 0.0
    rate = f"{number(len(starts) / span_s)} {of}/s" if span_s else "none: it has no time"
    tokens = trace.prompt_tokens
    prompts = f"{read.prompt}; {_range(int(tokens.min()), int(tokens.max()))} tokens"
    outputs = f"{read.output}; {_range(int(trace.output_tokens.min()), int(trace.output_tokens.max()))} tokens"
    left_out = "; ".join(read.left_out) or "nothing"
    facts = {
        "time": read.time,
        "span": f"{number(span_s)} s" if trace.clocked else "none: sessions have no common clock",
        "rate": rate,
        "prompt": prompts,
        "cached": read.cached or "not said",
        "prefix": read.prefix,
        "output": outputs,
        "sessions": read.sessions,
        **{name: _span(span) for name, span in zip(TIMES, read.times, strict=True) if span},
        **({"adapters": read.adapters} if read.adapters else {}),
        "left out": left_out,
    }
    many = f"{n:,} request{'' if n == 1 else 's'}"
    over = f" in {number(span_s)} s ({rate})" if span_s else ""
    said = [f"time: {read.time}", f"prompts: {read.prompt}"]
    said += [f"cached: {read.cached}"] if read.cached else []
    said += [f"prefixes: {read.prefix}", f"answers: {read.output}"]
    said += [f"adapters: {read.adapters}"] if read.adapters else []
    said += [f"left out: {left_out}"] if read.left_out else []
    improbable = doubts(trace)
    return Understood(
        tuple(facts.items()),
        f"{path}: {many}{over}; {'; '.join(said)}",
        (*read.doubts, *improbable),
        _unshared(trace),
        read.found_share,
    )


def _span(of: Span) -> str:
    """ "request_duration_ms; mean 7.48 s, p95 20.1 s" """
    return f"{of.field}; mean {significant(of.mean_s)} s, p95 {significant(of.p95_s)} s"


def doubts(trace: Trace) -> list[str]:
    """What is improbable of rates, pauses and lengths, whatever the file says."""
    found, starts = list[str](), _starts(trace)
    n, span_s = len(starts), float(starts.max())
    if trace.clocked and n > 1 and not trace.at_once:
        if span_s == 0:
            found.append(f"all {n:,} come at one moment; if that is not so, say workload.columns={{arrival: …}}")
        elif not SLOWEST <= n / span_s <= FASTEST:
            found.append(f"{number(n / span_s)} requests/s are improbable; if the unit of time is another, {WAY_OUT}")
        elif n > 2 and (gap := float(np.diff(np.sort(starts)).max())) > LONELY * span_s:
            found.append(f"nothing comes for {number(gap)} of {number(span_s)} s; are all times in one unit?")
    if trace.clocked and span_s:
        found += _regular(starts)
    if (longest := int(trace.prompt_tokens.max())) > LONGEST:
        found.append(
            f"a prompt of {longest:,} tokens is improbable; say workload.columns={{input: …}} if it is another field"
        )
    if read_cached := _unshared(trace):
        found.append(read_cached)
    if trace.links is not None and len(trace.links.later):
        usual = float(np.median(trace.links.delay_s[trace.links.later]))
        if usual > THOUGHT_S:
            found.append(f"{number(usual)} s from an answer to the next turn are improbable; {WAY_OUT}")
    if trace.clocked and trace.links is None:
        found += _pauses(trace)
    return found


def _regular(starts: Floats) -> list[str]:
    """A doubt about times that are the ends of minutes, or the like, and not those of requests."""
    moments = np.unique(np.round(starts * 1000).astype(np.int64))
    step_s = float(np.gcd.reduce(np.diff(moments))) / 1000 if len(moments) > 1 else 0.0
    if len(moments) == len(starts) and (np.diff(moments) == step_s * 1000).all():
        if len(moments) >= (LEAST_REGULAR if step_s % MINUTE_S == 0 else LEAST_ON_STEPS) and step_s >= STEP_S:
            return [
                f"one comes every {number(step_s)} s: if rows are sums over that time, or means, list requests one by "
                "one"
            ]
    elif len(moments) >= LEAST_ON_STEPS and step_s >= STEP_S:
        return [
            f"all come at whole multiples of {number(step_s)} s: if times are rounded, or rows are sums over that "
            "time, bursts are the file's, and not the load's"
        ]
    return []


def _starts(trace: Trace) -> Floats:
    """Of those that have a start of their own, from the first one on."""
    return trace.start_s[trace.turn == 0] if trace.closed else trace.start_s


WAY_OUT = "say workload.time_unit=s, ms, us or ns"


def _unshared(trace: Trace) -> str:
    """Where prompts here share nothing, and the recorder's cache found something, or sessions have several turns; where
    they share far less than that cache found; or nothing but prefixes, though sessions have several turns."""
    found_share, share, own = trace.reading.found_share, *_shares(trace)
    several = len(np.unique(trace.session[trace.turn > 0]))
    far_below = share < FAR_BELOW * found_share
    if not far_below and (own or not several):
        return ""
    here = f", {share:.1%} of their tokens" if share and far_below else ""
    said = [f"the recorder's cache found {found_share:.1%}{'' if here else ' of their tokens'}"] if far_below else []
    if several and not own:
        said.append(
            f"{several:,} session{'' if several == 1 else 's'} of several turns {'is' if several == 1 else 'are'} there"
        )
    what = "nothing" if not share else "little with earlier ones" if own else "nothing but prefixes"
    cure = f"; {trace.reading.cure}" if trace.reading.cure else ""
    return (
        f"here prompts share {what}{here}, though {' and '.join(said)}: caches, and routers that follow prefixes, have "
        f"{'little' if share else 'nothing'} to find{cure}"
    )


def _shares(trace: Trace) -> tuple[float, bool]:
    """Of the prompts' tokens, those that an earlier prompt has, or an answer; and whether some of them are no prefix
    that is everybody's."""
    ids, tokens = trace.prompts.ids, trace.prompts.tokens
    first = np.empty(int(ids.max()) + 1, np.int64)
    first[ids[::-1]] = np.arange(len(ids))[::-1]
    again = first[ids] < np.arange(len(ids))
    if trace.answer is not None:
        answers = np.zeros(len(first), np.bool_)
        answers[trace.answer[trace.answer >= 0]] = True
        again |= answers[ids]
    own = again if trace.public is None else again & ~trace.public[ids]
    return float(tokens[again].sum(dtype=np.int64) / tokens.sum(dtype=np.int64)), bool(own.any())


def _pauses(trace: Trace) -> list[str]:
    order = np.lexsort((trace.turn, trace.session))
    same = trace.session[order][1:] == trace.session[order][:-1]
    if not same.any():
        return []
    before, later = order[:-1][same], order[1:][same]
    gaps: Floats = trace.start_s[later] - trace.start_s[before]
    early = float((gaps < trace.output_tokens[before] * QUICKEST_S).mean())
    found = []
    if early > OVERLAP and len(gaps) > 1:
        found.append(
            f"{early:.0%} of the turns come before the answer before them can have been generated; "
            f"if the unit of time is another, {WAY_OUT}"
        )
    if (usual := float(np.median(gaps))) > PAUSE_S:
        found.append(f"a pause of {number(usual)} s between turns is improbable; if the unit is another, {WAY_OUT}")
    return found


def number(value: float) -> str:
    """A number for people to read, with four digits."""
    if not math.isfinite(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
