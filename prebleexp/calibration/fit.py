"""Few factors of a step's cost, fitted to what was measured of a ladder's stages: by the mode of the posterior about
what ships, with the same streams of requests whatever a step costs, and a bounded number of simulations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prebleexp.calibration import factors
from prebleexp.calibration.factors import FACTORS
from prebleexp.calibration.simulated import Simulated
from prebleexp.hardware.equations import Array
from prebleexp.hardware.fitting import FREEDOM
from prebleexp.hardware.own_runs import OWN
from prebleexp.hardware.verdict import score

SCATTER = {"ttft_mean_s": OWN.ttft, "ttft_p90_s": OWN.ttft}
"""of the logarithm about the simulation, as of closed loops about the equations; of the others: OWN.tpot"""
TOLD = 0.8
"""a factor is fitted where the ladder leaves so small a share of its interval, or less"""
DIFFERENCE = 0.08
"""of logarithms, over which slopes are taken: much more than what a few requests that come in another order make"""
STEPS = 4
HALVINGS = 3
LEAST_GAIN = 0.1
"""of the posterior's logarithm, in the last step"""
FOLD_STEPS = 2
FURTHEST = 0.7
"""a logarithm moves in a step"""


@dataclass(frozen=True)
class Fitted:
    """Logarithms of factors are in the order of `FACTORS`, those of metrics in that of `Simulated.seen`."""

    told: NDArray[np.bool_]
    """which factors the ladder tells; the others are as they ship"""
    logs: Array
    spread: Array
    """standard deviations, whatever the others are, …"""
    prior: Array
    """… and of what ships"""
    before: Array
    """(seeds, seen) simulated by what ships, …"""
    after: Array
    """… by the fit to all stages, …"""
    left_out: Array
    """… and each stage by a fit to the others"""
    score: float
    """by how much the logarithm of the likelihood of stages left out is greater than by what ships"""


def fit(ladder: Simulated) -> Fitted:
    """Factors of step times that fit a measured ladder best, by Gauss-Newton on logarithms. The same ladder has the
    same result."""
    problem = _Problem.of(ladder)
    zero = np.zeros(len(FACTORS))
    before = ladder(zero)
    problem = problem.scattered(before)
    slopes = problem.slopes(zero, before)
    told = problem.told(slopes)
    everything = np.ones(len(problem.measured), np.bool_)
    logs, after = zero, before
    if told.any():
        logs, after, slopes = problem.mode(told, before, slopes)
        # the noise of a stage near overload depends much on where that is
        problem = problem.scattered(before, after)
        logs = problem.move(logs, after, slopes, told, everything)
        after = ladder(logs)
        slopes = problem.slopes(logs, after)
    spread = np.sqrt(np.diag(np.linalg.inv(problem.curvature(after, slopes, everything))))
    left_out = problem.left_out(logs, after, slopes, told) if told.any() else before
    off, others = (problem.errors(one) / problem.scatter for one in (before, left_out))
    share = 1 / np.bincount(problem.rung)[problem.rung]  # stages are independent, what is known of one is not
    prior = np.sqrt(np.diag(problem.covariance))
    return Fitted(told, logs, spread, prior, before, after, left_out, score(off, others, share) if told.any() else 0.0)


@dataclass(frozen=True)
class _Problem:
    simulate: Callable[[Array], Array]
    measured: Array
    """(seen,)"""
    rung: NDArray[np.intp]
    """(seen,) of which stage"""
    model: Array
    """(seen,) scatter about the simulation"""
    covariance: Array
    """of the prior"""
    scatter: Array
    """with the noise of streams"""

    @classmethod
    def of(cls, ladder: Simulated) -> _Problem:
        seen = ladder.seen
        kinds = [(i, name.startswith("ttft")) for i, name in seen]
        model = np.array([SCATTER.get(name, OWN.tpot) for _, name in seen])
        times = np.array([kinds.count(one) for one in kinds])  # mean and percentile, TPOT and latency say one thing
        model = model * np.sqrt(times)
        return cls(
            ladder,
            ladder.measured,
            np.array([i for i, _ in seen], np.intp),
            model,
            factors.covariance(ladder.hardware),
            model,
        )

    def scattered(self, *made: Array) -> _Problem:
        """With the noise of one stream, and of the mean of so many, at the noisiest of these."""
        seeds = len(made[0])
        noise = np.zeros(len(self.measured))
        if seeds > 1:
            noise = np.max([np.log(one).std(axis=0, ddof=1) for one in made], axis=0) * np.sqrt(1 + 1 / seeds)
        return _Problem(
            self.simulate,
            self.measured,
            self.rung,
            self.model,
            self.covariance,
            np.hypot(self.model, noise),
        )

    def errors(self, made: Array) -> Array:
        """The logarithms of simulated over measured, (seen,)."""
        found: Array = np.log(made.mean(axis=0) / self.measured)
        return found

    def slopes(self, logs: Array, made: Array) -> Array:
        """(seen, factors), towards what ships, where there are bounds on the other side."""
        found = np.empty((len(self.measured), len(FACTORS)))
        for i in range(len(FACTORS)):
            by = np.zeros(len(FACTORS))
            by[i] = DIFFERENCE if logs[i] <= 0 else -DIFFERENCE
            found[:, i] = (self.errors(self.simulate(logs + by)) - self.errors(made)) / by[i]
        return found

    def curvature(self, made: Array, slopes: Array, kept: NDArray[np.bool_]) -> Array:
        weight = np.where(kept, self._weight(made), 0.0)
        found: Array = (slopes * weight[:, None]).T @ slopes + np.linalg.inv(self.covariance)
        return found

    def _weight(self, made: Array) -> Array:
        """Of Student's t: what is out of all line counts little."""
        found: Array = (FREEDOM + 1) / (FREEDOM + (self.errors(made) / self.scatter) ** 2) / self.scatter**2
        return found

    def told(self, slopes: Array) -> NDArray[np.bool_]:
        """Of each alone: where two say nearly one thing, both are fitted, and the prior divides it between them."""
        weight = (FREEDOM + 1) / FREEDOM / self.scatter**2  # whatever the errors are
        prior = np.diag(self.covariance)
        left = 1 / np.sqrt(1 + prior * (weight[:, None] * slopes**2).sum(axis=0))
        found: NDArray[np.bool_] = left <= TOLD
        return found

    def move(self, logs: Array, made: Array, slopes: Array, told: NDArray[np.bool_], kept: NDArray[np.bool_]) -> Array:
        """One step of Gauss and Newton from here, of the factors that are told, by the observations that are kept."""
        weight = np.where(kept, self._weight(made), 0.0)
        down = (slopes.T @ (weight * self.errors(made)) + np.linalg.solve(self.covariance, logs))[told]
        by = -np.linalg.solve(self.curvature(made, slopes, kept)[np.ix_(told, told)], down)
        there = logs.copy()
        there[told] += by / max(1.0, float(np.abs(by).max()) / FURTHEST)
        return there

    def loss(self, logs: Array, made: Array) -> float:
        off = self.errors(made) / self.scatter
        prior = float(logs @ np.linalg.solve(self.covariance, logs))
        return float((FREEDOM + 1) / 2 * np.log1p(off**2 / FREEDOM).sum()) + prior / 2

    def mode(self, told: NDArray[np.bool_], before: Array, slopes: Array) -> tuple[Array, Array, Array]:
        logs, made = np.zeros(len(FACTORS)), before
        everything = np.ones(len(self.measured), np.bool_)
        for _ in range(STEPS):
            there, gain = self.move(logs, made, slopes, told, everything), -1.0
            for _ in range(HALVINGS):
                tried = self.simulate(there)
                gain = self.loss(logs, made) - self.loss(there, tried)
                if gain >= 0:
                    break
                there = (logs + there) / 2
            if gain < 0:
                break
            logs, made = there, tried
            slopes = self.slopes(logs, made)
            if gain < LEAST_GAIN:
                break
        return logs, made, slopes

    def left_out(self, logs: Array, made: Array, slopes: Array, told: NDArray[np.bool_]) -> Array:
        """(seeds, seen) each stage as the others say it: from the fit to all, by its slopes and errors of the others
        alone, simulated anew after each step."""
        found = made.copy()
        for rung in np.unique(self.rung):
            kept, there, tried = self.rung != rung, logs, made
            for _ in range(FOLD_STEPS):
                there = self.move(there, tried, slopes, told, kept)
                tried = self.simulate(there)
            found[:, ~kept] = tried[:, ~kept]
        return found


def shares(made: Array, measured: Array) -> Array:
    """simulated / measured − 1, of a mean over streams."""
    found: Array = made.mean(axis=0) / measured - 1
    return found


def gains(arm: Array, other: Array, chosen: Sequence[int], others: Sequence[int]) -> Array:
    """(seeds,) how many times as much of a metric an arm has, in the mean over stages; columns of `Simulated.seen`."""
    found: Array = (arm[:, list(chosen)] / other[:, list(others)]).mean(axis=1)
    return found
