"""What runs cost, where a price of GPUs is given: it changes no result, and is in no key."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.experiment.results import Result
from prebleexp.intervals import mean_interval
from prebleexp.launch.rows import Mean, Row
from prebleexp.planning.prices import KEY, Prices

COST = "cost"


def cost(prices: Prices, result: Result) -> float | None:
    """Of a run's GPU-hours. Raises InvalidInput, naming the kind, if one of its GPUs has no price."""
    hours = None if result.metrics is None else result.metrics["gpu_hours"]
    return None if hours is None else prices.an_hour(result.cell) / result.cell.gpus * float(hours)


def costs(prices: Prices, results: Sequence[Result]) -> Mean:
    """The mean of runs, and its interval."""
    found = [value for one in results if (value := cost(prices, one)) is not None]
    return mean_interval(found, of_one=results[0].cell.draws_costs) if found else None


def rows(prices: Prices | None, of: Sequence[Row], results: Sequence[Result]) -> list[Row]:
    """Rows of runs that succeeded, with what each cost if there is a price."""
    if prices is None:
        return list(of)
    ran = [one for one in results if one.error is None]
    return [{**row, COST: cost(prices, one)} for row, one in zip(of, ran, strict=True)]


def sentence(prices: Prices, results: Sequence[Result]) -> str:
    """A sentence with what one configuration costs."""
    found = costs(prices, results)
    if found is None:
        return ""
    mean, half = found
    hours = mean_interval([float(one.metrics["gpu_hours"]) for one in results if one.metrics is not None])[0]
    interval = "" if half is None else f" ± {half:.2g}"
    each = "its kinds' prices" if not isinstance(prices.of, float | int) else f"{KEY}={prices.of:g}"
    return f"cost: {mean:.4g}{interval}, of {hours:.4g} GPU-hours at {each}"
