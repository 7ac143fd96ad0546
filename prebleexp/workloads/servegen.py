"""Clients of ServeGen: each with a rate and gaps of its own by the hour, and lengths of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import flag, is_number
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Longs, Workload
from prebleexp.workloads import files
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.blocks import private
from prebleexp.workloads.documents import rows_of
from prebleexp.workloads.few_shot import LONGEST, MOST_REQUESTS, random
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.rows import Records

WINDOW_S = 600.0
"""of one rate and shape"""
SHARES = np.array([0, 0.01, *np.arange(1, 20) / 20, 0.99, 0.999, 1])
"""of the quantiles of lengths"""
GAMMA, WEIBULL = "G", "W"

BEGIN, ARRIVALS, INPUTS, OUTPUTS = range(4)
"""random streams"""


class Client(NamedTuple):
    begin_s: Floats
    """(windows,)"""
    rate: Floats
    """(windows,) requests a second"""
    gamma: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """(windows,) whether gaps are gamma, not Weibull"""
    shape: Floats
    """(windows,)"""
    from_s: Floats
    """(lengths,) from when on each of these holds"""
    inputs: Floats
    """(lengths, 24) quantiles, of tokens"""
    outputs: Floats
    """(lengths, 24)"""


@dataclass(frozen=True)
class ServeGen(WorkloadSource):
    """Clients as ServeGen describes them, JSON lines of {windows, lengths}: windows are [second, requests/s, CV,
    G(amma) or W(eibull), shape] for 600 s each, lengths {second: {input, output}} 24 quantiles each, at 0, 0.01, 0.05,
    0.1, … 0.95, 0.99, 0.999 and 1.

    A run is `duration_s` from a moment that the seed draws; all rates are multiplied by one number, so that the mean
    over the whole file is `rps`. In each of a client's windows its requests have gaps of that shape, as many as its
    rate says. Input and output are drawn independently. Prompts share nothing.

    Source: Xiang et al., "ServeGen", whose release draws both lengths from one uniform number (`coupled`). Raises
    InvalidInput, naming the file and the row, for what is not valid.
    """

    path: str | None = None
    """relative to the current folder; plain, .gz or .zst"""
    coupled: bool = False
    """true: a request's input and output length have the same rank, as in the released generator"""

    own_outputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidInput(
                f"workload.path={self.path} is not valid; servegen needs workload.path=FILE, clients made from "
                "https://github.com/alibaba/ServeGen"
            )
        flag("workload.coupled", self.coupled)

    @property
    def retimed_by(self) -> tuple[str, ...]:
        return ("profile",)

    def identity(self) -> dict[str, object]:
        """The file's contents stand for its path."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "path"}
        return own | {"sha256": files.digest(self.path)}

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        clients = _read(str(self.path), files.digest(self.path))
        first = min(float(one.begin_s[0]) for one in clients)
        last = max(float(one.begin_s[-1]) for one in clients) + WINDOW_S
        if not duration_s <= last - first:
            raise InvalidInput(f"duration_s={duration_s} is not valid; {self.path} lasts {last - first:g} s")
        if not rps * max(duration_s, 2 * WINDOW_S) <= MOST_REQUESTS:
            raise InvalidInput(f"rps={rps} for duration_s={duration_s} is not valid; those are too many requests")
        mean = sum(float(one.rate.sum()) for one in clients) * WINDOW_S / (last - first)
        begin_s = first + random(seed, BEGIN).random() * (last - first - duration_s)
        streams = [random(seed, stream) for stream in (ARRIVALS, INPUTS, OUTPUTS)]
        drawn = [_requests(one, begin_s, begin_s + duration_s, rps / mean, streams, self.coupled) for one in clients]
        start_s, inputs, outputs = (np.concatenate(column) for column in zip(*drawn, strict=True))
        if not len(start_s):
            raise InvalidInput(
                f"rps={rps} for duration_s={duration_s} is not valid; with seed={seed} that is no request"
            )
        order = np.argsort(start_s, kind="stable")
        prompts = private(inputs[order])
        return Workload(
            arrival_s=start_s[order] - begin_s,
            prompt_tokens=inputs[order],
            output_tokens=outputs[order],
            max_new_tokens=outputs[order],
            prefix_group=np.full(len(order), -1, np.int32),
            segment_offsets=prompts.offsets,
            segment_ids=prompts.ids,
            segment_tokens=prompts.tokens,
        )


def _requests(
    client: Client, begin_s: float, end_s: float, factor: float, streams: list[np.random.Generator], coupled: bool
) -> tuple[Floats, Longs, Longs]:
    """Starts, inputs and outputs of those that come within a run."""
    arrivals, of_inputs, of_outputs = streams
    found = [np.zeros(0)]
    for window in np.flatnonzero((client.begin_s < end_s) & (client.begin_s + WINDOW_S > begin_s)):
        count = int(client.rate[window] * factor * WINDOW_S + arrivals.random())
        shape = client.shape[window]
        gaps = (arrivals.standard_gamma if client.gamma[window] else arrivals.weibull)(shape, count + 1)
        at = client.begin_s[window] + np.cumsum(gaps)[:-1] / gaps.sum() * WINDOW_S
        found.append(at[(at >= begin_s) & (at < end_s)])
    start_s = np.concatenate(found)
    period = np.maximum(np.searchsorted(client.from_s, start_s, side="right") - 1, 0)
    ranks = of_inputs.random(len(start_s))
    others = ranks if coupled else of_outputs.random(len(start_s))
    return start_s, _lengths(client.inputs, period, ranks), _lengths(client.outputs, period, others)


def _lengths(quantiles: Floats, period: Longs, ranks: Floats) -> Longs:
    found = np.empty(len(ranks), np.int64)
    for one in np.unique(period):
        rows = period == one
        found[rows] = np.rint(np.interp(ranks[rows], SHARES, quantiles[one]))
    return np.maximum(found, 1)


@lru_cache(maxsize=2)
def _read(path: str, digest: str) -> list[Client]:
    """Once for each contents of a file."""
    rows = rows_of(path)
    if not isinstance(rows, Records):
        raise InvalidInput(f"{path}: not JSON lines")
    windows, lengths = rows.values("windows"), rows.values("lengths")
    return [_client(rows, row, windows[row], lengths[row]) for row in range(len(rows))]


def _client(rows: Records, row: int, windows: Any, lengths: Any) -> Client:
    if not (isinstance(windows, list) and windows and all(map(_is_window, windows))):
        raise rows.wrong(row, "windows is not valid; it must be a list of [second, requests/s, CV, G or W, shape]")
    begin_s = np.array([one[0] for one in windows], np.float64)
    if (np.diff(begin_s) < WINDOW_S).any():
        raise rows.wrong(row, f"windows is not valid; each must begin {WINDOW_S:g} s after the one before it, or later")
    if not (isinstance(lengths, dict) and lengths and all(map(_is_lengths, lengths.items()))):
        raise rows.wrong(
            row, f"lengths is not valid; it must be {{second: {{input, output}}}} with {len(SHARES)} rising quantiles"
        )
    periods = sorted(lengths, key=float)
    return Client(
        begin_s,
        np.array([one[1] for one in windows], np.float64),
        np.array([one[3] == GAMMA for one in windows]),
        np.array([one[4] for one in windows], np.float64),
        np.array([float(one) for one in periods]),
        *(np.array([lengths[one][name] for one in periods], np.float64) for name in ("input", "output")),
    )


def _is_window(one: Any) -> bool:
    return (
        isinstance(one, list)
        and len(one) == 5
        and all(is_number(one[i]) and one[i] >= 0 for i in (0, 1, 2, 4))
        and one[3] in (GAMMA, WEIBULL)
        and one[4] > 0
    )


def _is_lengths(item: tuple[str, Any]) -> bool:
    second, one = item
    try:
        float(second)
    except ValueError:
        return False
    return isinstance(one, Mapping) and all(_is_quantiles(one.get(name)) for name in ("input", "output"))


def _is_quantiles(one: Any) -> bool:
    fits = isinstance(one, list) and len(one) == len(SHARES) and all(map(is_number, one))
    return fits and one[0] >= 0 and one[-1] <= LONGEST and bool((np.diff(one) >= 0).all())
