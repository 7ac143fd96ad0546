"""Parameters of the step's equations, fitted to closed loops, or to whole steps.

Every parameter of a measurement is a product: what holds for all, times an effect of its GPU and engine, of its model
and precision, of the engine's version, and of the number of GPUs. Effects are drawn towards 1, so that few measurements
of a configuration move them little (a hierarchical model, fitted by its mode). Errors are Student's t in the logarithm,
so that a measurement that is out of all line counts little. What was never measured has the effect 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from prebleexp.hardware.domain import Domain
from prebleexp.hardware.equations import Array
from prebleexp.hardware.measurements import ClosedLoops
from prebleexp.hardware.parameters import NAMES, Parameters
from prebleexp.hardware.steps import Steps
from prebleexp.hardware.uncertain import VERSION as VERSIONS

PRIOR = Parameters(
    e_c=0.6, e_m=0.8, e_xc=0.35, e_xm=0.6, t_layer=40e-6, t_moe=40e-6, t_step=5e-4, t_req=8e-6, a0=0.02, a1=5e-6,
    f=1.0, v=1.0, e_kv=1.0, e_p=0.6, a2=5e-6,
)  # fmt: skip
"""before any closed loop was seen: efficiencies of tables of kernels, and launches of today's engines"""
SPREAD = {
    "e_c": 0.2,
    "e_m": 0.1,
    "e_xc": 0.4,
    "e_xm": 0.18,
    "t_layer": 0.5,
    "t_moe": 0.7,
    "t_step": 1.0,
    "t_req": 1.0,
    "a0": 1.5,
    "a1": 1.5,
    "a2": 1.0,
}
"""standard deviation of each logarithm"""
MOST_BANDWIDTH = 0.92
"""share of the memory's bandwidth at which the best of 8,340 measured matrix products reads its weights (ai-dynamo's
aiconfigurator, gemm; an L40S; .80 on an A100, .90 on an H200)"""
MOST_COMPUTE = 0.95
"""likewise of the peak FLOP/s (an A100; .90 on an H100)"""
MOST_EXPERTS = 1.15
"""likewise of experts, which are read as if all were as likely: where some are more so, fewer are read"""
FREEDOM = 3.0
"""degrees of freedom of Student's t"""
STEPS = 40
LEAST_GAIN = 1e-2
"""of the logarithm of the posterior, in the last step"""
FURTHEST = 1.0
"""a logarithm moves in a step"""
DIFFERENCE = 1e-4


@dataclass(frozen=True)
class Effect:
    """On one parameter, one for each combination of these labels; `spread` is the prior's of its logarithm."""

    parameter: str
    labels: tuple[str, ...]
    spread: float


def _effects(labels: tuple[str, ...], **spread: float) -> tuple[Effect, ...]:
    return tuple(Effect(name, labels, value) for name, value in spread.items())


ENGINE = ("gpu", "engine")
CONFIGURATION = (*ENGINE, "model", "precision")
VERSION = (*CONFIGURATION, "version")
GROUP = (*CONFIGURATION, "tp")


@dataclass(frozen=True)
class Design:
    """Which effects there are, and how far TPOT and TTFT scatter about the equations (of the logarithm)."""

    effects: tuple[Effect, ...]
    tpot: float
    ttft: float
    balanced: bool = False
    """every model and precision weighs the same, however many rows it has: the next model is one more of them"""
    apart: tuple[str, ...] = ()
    """models whose TTFT is not fitted: nothing else's is like it"""


EXPERTS = ("e_xc", "e_xm", "t_moe")
"""of layers with experts, which each engine computes by kernels of its own"""
POOLED = Design(
    (*_effects((), **SPREAD), *_effects(("engine",), **{name: SPREAD[name] for name in EXPERTS})),
    0.1,
    0.3,
    balanced=True,
    apart=("deepseek-r1",),
)
"""one set for everything but an engine's experts: level 0, best for a model that was never measured.
First tokens of DeepSeek-R1 take SGLang and TensorRT-LLM .1 to .4 s more than its kernels, on four GPUs as on eight and
in FP4 as in FP8: some host's time, which no other model has."""
MEASURED = Design(
    (
        *_effects((), **SPREAD),
        *_effects(("engine", "release"), t_req=VERSIONS["t_req"]),
        *_effects(ENGINE, **{name: 0.5 * value for name, value in SPREAD.items()}, e_kv=0.02, e_p=0.2),
        *_effects(
            ("model",), a0=1.0
        ),  # so that the only model with first tokens on a GPU and engine is not taken for all
        *_effects(CONFIGURATION, f=0.3, v=0.2, a0=1.0, a1=1.0, a2=1.0),
        *_effects(VERSION, **{name: spread for name, spread in VERSIONS.items() if name != "t_req"}, a2=0.5),
        *_effects(GROUP, f=0.1, v=0.1),
    ),
    0.05,
    0.12,
)
"""for what was measured at other sizes"""


class Labelled(Protocol):
    """Rows of measurements, with labels to group them by."""

    def __len__(self) -> int: ...
    def keys(self, names: Iterable[str]) -> list[tuple[str, ...]]: ...
    def domain(self) -> Domain: ...


@dataclass(frozen=True)
class Fit:
    """`of` has, for each effect, the logarithm that was found for each of its labels."""

    design: Design
    prior: Parameters
    of: tuple[Mapping[tuple[str, ...], float], ...]

    def parameters(self, rows: Labelled) -> dict[str, Array]:
        """The fitted parameters of each row."""
        logs = {name: np.full(len(rows), np.log(getattr(self.prior, name))) for name in NAMES}
        for effect, values in zip(self.design.effects, self.of, strict=True):
            logs[effect.parameter] += [values.get(key, 0.0) for key in rows.keys(effect.labels)]
        return _possible({name: np.exp(value) for name, value in logs.items()})

    def predict(self, loops: ClosedLoops) -> tuple[Array, Array]:
        """(TPOT, TTFT) of each row, in seconds."""
        p = self.parameters(loops)
        return loops.predict(p)

    def at(self, **labels: str) -> Parameters:
        """With these labels; an effect of others that are not given is 1."""
        logs = {name: float(np.log(getattr(self.prior, name))) for name in NAMES}
        for effect, values in zip(self.design.effects, self.of, strict=True):
            logs[effect.parameter] += values.get(tuple(labels.get(one, "any") for one in effect.labels), 0.0)
        found = _possible({name: np.exp(value) for name, value in logs.items()})
        return Parameters(**{name: float(value) for name, value in found.items()})


def _possible(p: dict[str, Array]) -> dict[str, Array]:
    """The same with layers that are no faster than the GPU: `v` is of their time, too."""
    linear = {
        name: np.minimum(p[name], most * p["v"]) for name, most in {"e_m": MOST_BANDWIDTH, "e_c": MOST_COMPUTE}.items()
    }
    return p | linear | {"e_xm": np.minimum(p["e_xm"], MOST_EXPERTS)}


def fit(loops: ClosedLoops, design: Design, prior: Parameters = PRIOR) -> Fit:
    """To TPOT and TTFT of closed loops.

    Same rows, same result, but for the last digits of the machine's linear algebra.
    """
    known = np.flatnonzero(np.isfinite(loops.ttft_s) & ~np.isin(loops.labels["model"], design.apart))
    weight = _balance(loops) if design.balanced else np.ones(len(loops))
    scale = np.concatenate([design.tpot / np.sqrt(weight), design.ttft / np.sqrt(weight[known])])
    seen = np.log(np.concatenate([loops.tpot_s, loops.ttft_s[known]]))

    def predict(p: Mapping[str, Array]) -> Array:
        tpot, ttft = loops.predict(p)
        return np.concatenate([tpot, ttft[known]])

    return _fit(loops, design, prior, Seen(np.concatenate([np.arange(len(loops)), known]), seen, scale, predict))


def fit_steps(steps: Steps, design: Design, prior: Parameters = PRIOR) -> Fit:
    """To times of whole steps, which scatter as TPOT does."""
    scale = np.full(len(steps), design.tpot)
    return _fit(steps, design, prior, Seen(np.arange(len(steps)), np.log(steps.seconds), scale, steps.predict))


@dataclass(frozen=True)
class Seen:
    """Times to fit to: of which row each is, its logarithm, how far that scatters, and what predicts them all from the
    parameters of all rows."""

    row: NDArray[np.intp]
    log: Array
    scale: Array
    predict: Callable[[Mapping[str, Array]], Array]


def _fit(rows: Labelled, design: Design, prior: Parameters, seen: Seen) -> Fit:
    """The mode of the posterior, by Gauss and Newton with weights of the t distribution."""
    index, columns, spread = _index(rows, design)
    base = {name: np.full(len(rows), np.log(getattr(prior, name))) for name in NAMES}

    def residuals(x: Array, moved: str = "", by: float = 0.0) -> Array:
        logs = dict(base)
        for effect, column in zip(design.effects, columns, strict=True):
            logs[effect.parameter] = logs[effect.parameter] + x[column]
        if moved:
            logs[moved] = logs[moved] + by
        made: Array = np.log(seen.predict(_possible({name: np.exp(value) for name, value in logs.items()}))) - seen.log
        return made / seen.scale

    def jacobian(x: Array, here: Array) -> Array:
        slopes = {
            name: (residuals(x, name, DIFFERENCE) - here) / DIFFERENCE
            for name in dict.fromkeys(effect.parameter for effect in design.effects)
        }
        made = np.zeros((len(here), len(x)))
        each = np.arange(len(here))
        for effect, column in zip(design.effects, columns, strict=True):
            made[each, column[seen.row]] += slopes[effect.parameter]
        return made

    return Fit(design, prior, _named(index, mode(residuals, jacobian, spread)))


def _balance(loops: ClosedLoops) -> Array:
    """How much each row weighs."""
    keys = loops.keys(("model", "precision"))
    count = Counter(keys)
    mean = sum(count[key] for key in keys) / len(keys)
    return np.array([mean / count[key] for key in keys])


def _index(rows: Labelled, design: Design) -> tuple[list[dict[tuple[str, ...], int]], list[NDArray[np.intp]], Array]:
    """Of each effect, where its labels' values are among all, and where each row's is; and all priors."""
    index: list[dict[tuple[str, ...], int]] = []
    columns, spread = [], list[float]()
    for effect in design.effects:
        keys = rows.keys(effect.labels)
        index.append({key: len(spread) + i for i, key in enumerate(dict.fromkeys(keys))})
        columns.append(np.array([index[-1][key] for key in keys], dtype=np.intp))
        spread += [effect.spread] * len(index[-1])
    return index, columns, np.array(spread)


def _named(index: Sequence[Mapping[tuple[str, ...], int]], x: Array) -> tuple[dict[tuple[str, ...], float], ...]:
    return tuple({key: float(x[at]) for key, at in one.items()} for one in index)


def mode(residuals: Callable[..., Array], jacobian: Callable[[Array, Array], Array], spread: Array) -> Array:
    def loss(x: Array, here: Array) -> float:
        return float((FREEDOM + 1) / 2 * np.log1p(here**2 / FREEDOM).sum() + 0.5 * ((x / spread) ** 2).sum())

    x: Array = np.zeros(len(spread))
    here, damping = residuals(x), 1e-2
    least = loss(x, here)
    for _ in range(STEPS):
        slopes = jacobian(x, here)
        weighted = slopes * ((FREEDOM + 1) / (FREEDOM + here**2))[:, None]
        curvature = weighted.T @ slopes
        curvature[np.diag_indices_from(curvature)] += spread**-2.0
        down = weighted.T @ here + x / spread**2
        gain = -1.0
        while gain < 0 and damping < 1e6:
            damped = curvature + np.diag(damping * np.diag(curvature))
            move = -np.linalg.solve(damped, down)
            tried = x + move / max(1.0, float(np.abs(move).max()) / FURTHEST)
            there = residuals(tried)
            gain = least - loss(tried, there)
            damping *= 0.2 if gain >= 0 else 5.0
        if gain < 0:
            break
        x, here, least = tried, there, least - gain
        if gain < LEAST_GAIN:
            break
    return x


def labels_of(loops: ClosedLoops, names: Iterable[str]) -> list[tuple[str, ...]]:
    """Those that occur, in the order of the rows."""
    return list(dict.fromkeys(loops.keys(names)))
