"""The fitted parameters of the step's equations, and what is known of their error (spec: hardware.md, Levels and What
is supported). `prebleexp.hardware.fitting` fits them to public measurements; measured/ keeps what it found."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from prebleexp.hardware.domain import UNKNOWN, Domain

Configuration = tuple[str, str, str, str]
"""gpu, engine, model and precision"""
MEASURED = Path(__file__).parent / "measured"
"""what ships of the data; its README says where each file is from"""
ANY = ("any", "any", "any", "any")
"""the row of level 0; (any, engine, any, any): that of an engine"""
KERNELS_MEASURED = ("a100",)
"""GPUs whose linear layers, attention and links were measured well, but no serving engine of today"""

NOTHING = "nothing"
"""like a configuration was measured"""


@dataclass(frozen=True)
class Parameters:
    """Of one GPU, engine, model and precision; seconds and shares of a peak, in the letters of the spec.

    The step costs f · (t_step + L·t_layer + (L−D)·t_moe) + v · (everything else, t_req·S included) + what decodes read
    of their context, which neither is of; a request pays a0 + a1 · (prompt tokens) once, outside the GPU. Where all
    clients of a benchmark begin at once, each waits a2 · (prompt tokens) for the one before; no simulation does, since
    engines go on at many times that rate.
    """

    e_c: float
    """share of peak FLOP/s that linear layers reach"""
    e_m: float
    """share of the memory's bandwidth that they reach"""
    e_xc: float
    """the experts' share of peak FLOP/s"""
    e_xm: float
    """the experts' share of the memory's bandwidth"""
    t_layer: float
    t_moe: float
    t_step: float
    t_req: float
    a0: float
    a1: float
    f: float
    v: float
    e_kv: float = 1.0
    """how fast decodes read their context, where 1 is as their kernels were measured (`Gpu.attention`)"""
    e_p: float = 0.6
    """share of peak BF16 FLOP/s that attention of prefills reaches"""
    a2: float = 0.0
    in_step: float = 1.0
    """how many times as many requests as are read at one time go through a prefix that they share in step, so that one
    of them loads it; no measurement says"""


NAMES = tuple(one.name for one in fields(Parameters))


@dataclass(frozen=True)
class Given:
    """Some of them, by name; the others are those that ship for the engine that will be simulated."""

    of: tuple[tuple[str, float], ...]

    def over(self, shipped: Parameters) -> Parameters:
        return replace(shipped, **dict(self.of))

    def said(self, shipped: Parameters) -> str:
        """The first that is another, in words; empty: none is."""
        known = ((name, value, getattr(shipped, name)) for name, value in self.of)
        return next((f"hardware.parameters.{n} is {v:g}, and {s:g} as fitted" for n, v, s in known if v != s), "")


@dataclass(frozen=True)
class Support:
    """How far the step times of a configuration can be believed; errors as shares, of TPOT unless they say otherwise;
    NaN where there are none."""

    level: str
    """measured, steps measured, ladder measured, unseen model, kernels only or theory"""
    against: str
    """what they were compared with"""
    n: int
    """measurements of it"""
    median: float
    p90: float
    domain: Domain = UNKNOWN
    """of which sizes they were"""
    ttft_n: int = 0
    """measurements of it whose first tokens could be compared, of at most 32 clients"""
    ttft_median: float = math.nan
    ttft_p90: float = math.nan


def said(support: Support | None) -> str:
    """How well parameters are known, in a line."""
    if support is None:
        return "parameters of your own: nothing says how good they are"
    errors = f"median {support.median:.1%}, p90 {support.p90:.1%}"
    if not math.isnan(support.ttft_median):
        errors += f"; TTFT in {support.ttft_n}: median {support.ttft_median:.1%}, p90 {support.ttft_p90:.1%}"
    errors = errors.replace("%", " %") + (f"; {support.domain}" if support.domain else "")
    known = not math.isnan(support.median)
    if support.level == "measured" and known:
        return f"TPOT measured against {support.n} closed loops ({support.against}): {errors}"
    if support.level == "ladder measured" and known:
        return f"measured against {support.n} stages of {support.against}, each by a fit to the others: {errors}"
    if support.level == "measured":
        return f"fitted to {support.against}; its error was not measured"
    if support.level == "steps measured" and known:
        return f"step times measured against {support.n} whole steps ({support.against}), no serving engine: {errors}"
    if support.level == "unseen model" and known:
        return f"not measured itself; TPOT of models that were left out, in {support.n} closed loops: {errors}"
    if support.level == "kernels only":
        return f"kernels only: {support.against} were measured, no serving engine"
    what = support.against if support.against != NOTHING else "nothing like it was measured"
    return f"theory only: {what}"


def parameters_for(
    gpu: str, engine: str, model: str, precision: str, *, moe: bool = False, tp: int | None = None, version: str = ""
) -> tuple[Parameters, Support]:
    """Those of the very configuration if it was measured, else those that fit all measurements best (level 0), where
    experts are the engine's own.

    `moe` says whether the model has experts; `tp` is the number of GPUs that serve one copy, `version` the engine's: of
    a configuration that was measured with others, what is common to them; without a version, those of the newest.
    """
    key = (gpu, engine, model, precision)
    rows = shipped().get(key)
    if rows is not None:
        taken = version or list(rows)[-1][0]
        return _nearest(rows, taken, str(tp)), _support(key, "measured", _runs_of(key, taken))
    pooled, of_engine = _pooled(engine)["any", "any"], (gpu, engine, "any", "any")
    if of_engine in _known():
        return pooled, _support(of_engine, "unseen model", f"other models on {gpu} with {engine}, each left out")
    if gpu in KERNELS_MEASURED and not moe:
        return pooled, _support(ANY, "kernels only", "times of layers, attention and all-reduce")
    return pooled, _support(ANY, "theory", NOTHING)


def shipped_for(configuration: Configuration, version: str, tp: str) -> Parameters:
    """Those by which a measurement is predicted that the shipped ones were not fitted to."""
    rows = shipped().get(configuration, _pooled(configuration[1]))
    return _nearest(rows, version, tp)


def measured() -> list[Configuration]:
    """(gpu, engine, model, precision) of what was measured."""
    return [one for one in shipped() if one[0] != "any"]


@cache
def shipped() -> dict[Configuration, dict[tuple[str, str], Parameters]]:
    """By (gpu, engine, model, precision), and that by (version, GPUs): of each measured, the newest version last, and
    "any" for what is common to them."""
    found: dict[Configuration, dict[tuple[str, str], Parameters]] = {}
    for row in _table("parameters.csv"):
        values = Parameters(**{name: float(row[name]) for name in NAMES})
        found.setdefault(_key(row), {})[row["version"], row["tp"]] = values
    return found


def _pooled(engine: str) -> dict[tuple[str, str], Parameters]:
    """Those of level 0, of an engine if it was measured."""
    return shipped().get(("any", engine, "any", "any"), shipped()[ANY])


def _nearest(rows: Mapping[tuple[str, str], Parameters], version: str, tp: str) -> Parameters:
    tries = ((version, tp), (version, "any"), ("any", tp), ("any", "any"))
    return next(rows[one] for one in tries if one in rows)


def _runs_of(key: Configuration, taken: str) -> str:
    """What was run, in words; and which version's time per request is taken, if that one did not serve this model. All
    of a configuration was measured by one source: how much servers of others differ is not among its errors."""
    gpu, engine, *_ = key
    known = _known()[key].versions
    other = f", with {taken}'s time per request" if known and taken not in known else ""
    return f"serving runs of {' '.join((engine, *known))} on {gpu}, of one source{other}"


def _support(key: Configuration, level: str, against: str) -> Support:
    if level in ("kernels only", "theory"):
        return Support(level, against, 0, math.nan, math.nan)
    of = _known()[key]
    return Support(level, against, *of[:-1])


class _Known(NamedTuple):
    """Of what was measured: how far TPOT and TTFT were off by cross-validation, of which sizes it was, under which
    versions."""

    n: int
    median: float
    p90: float
    domain: Domain
    ttft_n: int
    ttft_median: float
    ttft_p90: float
    versions: tuple[str, ...]


@cache
def _known() -> dict[Configuration, _Known]:
    """Of (gpu, engine, any, any), that of models left out as a whole."""
    found = {}
    for row in _table("errors.csv"):
        requests, context, prompt = (int(row[name]) for name in ("requests", "context_tokens", "prompt_tokens"))
        domain = Domain(requests, context, prompt, float(row["requests_per_s"]), int(row["fewest"]))
        tpot = int(row["n"]), float(row["median"]), float(row["p90"])
        median, p90 = (float(row[one]) if row[one] else math.nan for one in ("ttft_median", "ttft_p90"))
        versions = tuple(row["versions"].split())
        found[_key(row)] = _Known(*tpot, domain, int(row["ttft_n"]), median, p90, versions)
    return found


def _key(row: Mapping[str, str]) -> Configuration:
    return row["gpu"], row["engine"], row["model"], row["precision"]


def _table(name: str) -> list[dict[str, str]]:
    with (MEASURED / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
