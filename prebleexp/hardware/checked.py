"""How well the equations predict measurements that their parameters were not fitted to.

A row that ships is predicted by a fit that left it out: once with a fifth of all configurations, once with its model.
Any other row is predicted by the shipped parameters, which were fitted to all that ship.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prebleexp.hardware import fitting, kernels, measurements, parameters
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.domain import Domain
from prebleexp.hardware.equations import Array
from prebleexp.hardware.fitting import CONFIGURATION, ENGINE, MEASURED, POOLED
from prebleexp.hardware.kernels import Calls
from prebleexp.hardware.measurements import ClosedLoops, Sizes
from prebleexp.hardware.parameters import ANY, NAMES, Configuration
from prebleexp.hardware.steps import Steps

FOLDS = 5
TPOT, TTFT, KV_TOKENS = "tpot", "ttft", "kv_tokens"
STEP = "step"
"""of a whole step; prefill_step, decode_step and mixed_step are of its kinds"""
ATTENTION_MUCH = "decode_attention_over_400_mb"
"""of calls of kernels, as the kinds in `prebleexp.hardware.kernels`; precision is then the cache's"""
ENGINE_SIMULATED = "vllm"
SIMULATED = "_simulated"
"""behind the name of a metric: by the simulator, not by the formula"""
ALL, SOME = "all", "*"
Row = dict[str, Any]


@dataclass(frozen=True)
class Predicted:
    """Rows of a table by parameters that were not fitted to them."""

    loops: ClosedLoops
    p: dict[str, Array]
    """of each row"""
    measured: NDArray[np.bool_]
    """whether these are of the row's configuration, fitted to others of its measurements"""

    @cached_property
    def times(self) -> tuple[Array, Array]:
        """(TPOT, TTFT) in seconds, by the formula."""
        return self.loops.predict(self.p)

    def errors(self, metric: str) -> Array:
        """Shares; NaN where the measurement is not known."""
        return off(self.loops, self.times, metric)


def off(loops: ClosedLoops, times: tuple[Array, Array], metric: str) -> Array:
    """|predicted / measured − 1| of each row."""
    made, seen = (times[0], loops.tpot_s) if metric == TPOT else (times[1], loops.ttft_s)
    return np.abs(made / seen - 1)


def simulable(seen: Predicted, sizes: Sizes) -> Predicted:
    """Benchmarks of the engine that the simulator has, of which it is known how they were done, and of whose experts a
    `Composed` has the precision."""
    labels = seen.loops.labels
    own = np.array([sizes.models[name].expert_precision for name in labels["model"].tolist()])
    chosen = (labels["engine"] == ENGINE_SIMULATED) & (labels["origin"] != measurements.UNKNOWN)
    chosen &= (own != "") | (labels["experts"] == labels["precision"])
    p = {name: values[chosen] for name, values in seen.p.items()}
    return Predicted(seen.loops.take(chosen), p, seen.measured[chosen])


def shipped_loops(sizes: Sizes) -> ClosedLoops:
    return measurements.closed_loops(parameters.MEASURED / "closed_loop.csv.gz", sizes)


def by_shipped(loops: ClosedLoops) -> Predicted:
    """Each row by the parameters that ship, even if they were fitted to it."""
    return Predicted(loops, _shipped(loops), np.zeros(len(loops), dtype=bool))


def predict(loops: ClosedLoops, shipped: ClosedLoops) -> Predicted:
    """Each row by the rule above."""
    known = np.isin(loops.configuration, shipped.configuration)
    p = _shipped(loops)
    measured = _is_of(loops, shipped)
    folds, of = shipped.fold(FOLDS), loops.fold(FOLDS)
    for fold in range(FOLDS):
        left_out = known & (of == fold)
        if left_out.any():
            rest = shipped.take(folds != fold)
            _fill(p, left_out, loops, fitting.fit(rest, MEASURED))
            measured[left_out] = _is_of(loops.take(left_out), rest)
    return Predicted(loops, p, measured)


def predict_unseen(loops: ClosedLoops, shipped: ClosedLoops) -> Predicted:
    """Those rows whose model can be left out, wherever it ran, or was never measured in this configuration."""
    known = np.isin(loops.configuration, shipped.configuration)
    chosen = known | ~_is_of(loops, shipped)
    loops, known = loops.take(chosen), known[chosen]
    p = _shipped(loops)
    models = loops.labels["model"]
    for model in dict.fromkeys(models[known].tolist()):
        rest = shipped.take(shipped.labels["model"] != model)
        _fill(p, known & (models == model), loops, fitting.fit(rest, POOLED))
    return Predicted(loops, p, np.zeros(len(loops), dtype=bool))


def _is_of(loops: ClosedLoops, others: ClosedLoops) -> NDArray[np.bool_]:
    """Whether the configuration of each is one of the others'."""
    there = set(others.keys(CONFIGURATION))
    return np.array([key in there for key in loops.keys(CONFIGURATION)], dtype=bool)


def _shipped(loops: ClosedLoops) -> dict[str, Array]:
    """The shipped parameters of each row."""
    keys = loops.keys((*CONFIGURATION, "version", "tp"))
    found = [parameters.shipped_for((key[0], key[1], key[2], key[3]), key[4], key[5]) for key in keys]
    return {name: np.array([getattr(one, name) for one in found], dtype=np.float64) for name in NAMES}


def _fill(p: dict[str, Array], chosen: NDArray[np.bool_], loops: ClosedLoops, fit: fitting.Fit) -> None:
    for name, values in fit.parameters(loops.take(chosen)).items():
        p[name][chosen] = values


# ---------------------------------------------------------------- what is printed
def table(seen: Predicted, unseen: Predicted) -> list[Row]:
    """A row of errors for everything, for each source, and for each configuration; for each metric."""
    return [row for metric in (TPOT, TTFT) for row in _of_metric(metric, seen, unseen)]


def _of_metric(metric: str, seen: Predicted, unseen: Predicted) -> Iterator[Row]:
    errors = seen.errors(metric)
    yield from _row(metric, errors, gpu=ALL, engine=ALL, model=ALL, precision=ALL)
    yield from _row(metric, errors[seen.measured], model="measured")
    yield from _row(metric, unseen.errors(metric), model="unseen")
    yield from _by(("engine", "origin"), metric, errors, seen.loops)
    for key in sorted(fitting.labels_of(unseen.loops, fitting.ENGINE)):
        chosen = _are(unseen.loops, fitting.ENGINE, key)
        yield from _row(metric, unseen.errors(metric)[chosen], gpu=key[0], engine=key[1], model="unseen")
    yield from _by(CONFIGURATION, metric, errors, seen.loops)


def simulated_table(loops: ClosedLoops, times: tuple[Array, Array]) -> list[Row]:
    """How far times by the simulator are off, a row for each source and each configuration."""
    rows: list[Row] = []
    for metric in (TPOT, TTFT):
        errors = off(loops, times, metric)
        for names in (("engine", "origin"), CONFIGURATION):
            rows += _by(names, f"{metric}{SIMULATED}", errors, loops)
    return rows


def _by(names: tuple[str, ...], metric: str, errors: Array, loops: ClosedLoops) -> Iterator[Row]:
    for key in sorted(fitting.labels_of(loops, names)):
        yield from _row(metric, errors[_are(loops, names, key)], **dict(zip(names, key, strict=True)))


def _are(loops: ClosedLoops, names: tuple[str, ...], key: tuple[str, ...]) -> NDArray[np.bool_]:
    return np.array([each == key for each in loops.keys(names)], dtype=bool)


def _row(metric: str, errors: Array, **labels: str) -> Iterator[Row]:
    """None if there is nothing to compare."""
    errors = errors[np.isfinite(errors)]
    if len(errors):
        of = {name: labels.get(name, SOME) for name in (*CONFIGURATION, "origin")}
        median, p90 = float(np.median(errors)), float(np.quantile(errors, 0.9))
        yield {**of, "metric": metric, "n": len(errors), "median_error": median, "p90_error": p90}


def steps_table(of: Steps) -> list[Row]:
    """Of whole steps, by the parameters that ship: all, each kind, and each kind of each configuration."""
    errors = np.abs(of.by_shipped() / of.seconds - 1)
    rows = list(_row(STEP, errors, gpu=ALL, engine=ALL, model=ALL, precision=ALL))
    for names in ((), CONFIGURATION):
        for *key, kind in sorted(set(of.keys((*names, "kind")))):
            chosen = np.array([one == (*key, kind) for one in of.keys((*names, "kind"))], dtype=bool)
            rows += _row(f"{kind}_{STEP}", errors[chosen], **dict(zip(names, key, strict=True)))
    return rows


def kv_table(path: Path, sizes: Sizes) -> list[Row]:
    """Of the tokens of KV that engines reported."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for gpu, model, gpus, precision, tokens in measurements.kv_capacities(path, sizes):
        engine = Composed(gpu=gpu, model=model, tensor_parallel=gpus, precision=precision, kv_precision="bf16")
        found.setdefault((gpu.name, model.name, precision), []).append(abs((engine.kv_tokens or 0) / tokens - 1))
    everything = [error for errors in found.values() for error in errors]
    rows = list(_row(KV_TOKENS, np.array(everything), gpu=ALL, engine=ALL, model=ALL, precision=ALL))
    for (name, model_name, precision), errors in found.items():
        rows += _row(KV_TOKENS, np.array(errors), gpu=name, model=model_name, precision=precision)
    return rows


def kernels_table(calls: Mapping[tuple[str, str, str], Calls], sizes: Sizes) -> list[Row]:
    """Of calls of kernels of attention, by kind, GPU and precision of the cache; and of those that decode and read
    much, by the reading from memory alone that steps have."""
    errors: dict[str, dict[kernels.Key, Array]] = {}
    for (kind, *rest), of in calls.items():
        key = rest[0], rest[1]
        gpu = sizes.gpus[key[0]]
        errors.setdefault(kind, {})[key] = np.abs(kernels.predicted(kind, key, of, gpu) / of.seconds - 1)
        if kind == kernels.DECODE:
            much = of.bytes > kernels.MUCH
            seconds = of.bytes[much] / gpu.reading(key[1])[0]
            errors.setdefault(ATTENTION_MUCH, {})[key] = np.abs(seconds / of.seconds[much] - 1)
    rows = list[Row]()
    for name in (ATTENTION_MUCH, kernels.DECODE, kernels.PREFILL, kernels.MIXED):
        found = errors.get(name, {})
        if found:
            rows += _row(name, np.concatenate(list(found.values())), gpu=ALL, engine=ALL, model=ALL, precision=ALL)
        for (gpu_name, kv), off_by in sorted(found.items()):
            rows += _row(name, off_by, gpu=gpu_name, precision=kv)
    return rows


# ---------------------------------------------------------------- what ships
def remade(shipped: ClosedLoops) -> dict[str, str]:
    """The texts of measured/parameters.csv and measured/errors.csv."""
    return {"parameters.csv": parameters_csv(shipped), "errors.csv": _errors_csv(shipped)}


def parameters_csv(shipped: ClosedLoops) -> str:
    dates: dict[tuple[str, ...], str] = {}
    for each, date in zip(shipped.keys((*CONFIGURATION, "version")), shipped.labels["date"].tolist(), strict=True):
        dates[each] = max(dates.get(each, ""), date)
    pooled, rows = fitting.fit(shipped, POOLED), list[tuple[Any, ...]]()
    for engine in (ANY[1], *sorted(set(shipped.labels["engine"].tolist()))):
        rows.append((ANY[0], engine, *ANY[2:], "any", "any", *_rounded(pooled, {"engine": engine})))
    fit = fitting.fit(shipped, MEASURED)
    newest = _newest(shipped)
    for key in sorted(fitting.labels_of(shipped, CONFIGURATION)):
        versions = sorted((one for one in dates if one[:4] == key), key=lambda one: (dates[one], one))
        groups = sorted({each[4] for each in shipped.keys((*CONFIGURATION, "tp")) if each[:4] == key}, key=int)
        own = [one[4] for one in versions]
        for version in ("any", *own, *({newest[key[:2]]} - set(own))):
            # one that was measured of other models alone: what is of this model as in the last that was, …
            of = {
                "version": version if version in ("any", *own) else own[-1],
                "release": version,
            }  # … what is of all new
            for tp in ("any", *groups):
                labels = dict(zip((*CONFIGURATION, "tp"), (*key, tp), strict=True))
                rows.append((*key, version, tp, *_rounded(fit, labels | of)))
    return _csv((*CONFIGURATION, "version", "tp", *NAMES), rows)


def _newest(loops: ClosedLoops) -> dict[tuple[str, ...], str]:
    """Of each GPU and engine, the version that was measured last there: an engine's version that was measured on other
    GPUs alone cannot be told from what these do."""
    return {
        key[:2]: key[2]
        for _, key in sorted(zip(loops.labels["date"].tolist(), loops.keys((*ENGINE, "version")), strict=True))
    }


def _rounded(fit: fitting.Fit, labels: Mapping[str, str]) -> list[str]:
    found = fit.at(**labels)
    return [f"{getattr(found, name):.4g}" for name in NAMES]


def _errors_csv(shipped: ClosedLoops) -> str:
    rows = []
    for key, of in errors_of(shipped).items():
        chosen = [one for one, label in zip(CONFIGURATION, key, strict=True) if label != "any"]
        of_key = shipped.take(_are(shipped, tuple(chosen), key[: len(chosen)]))
        domain, versions = of_key.domain(), " ".join(sorted(set(of_key.labels["version"].tolist()) - {""}))
        sizes = (domain.requests, domain.context_tokens, domain.prompt_tokens, f"{domain.requests_per_s:.4g}")
        rows.append((*key, *_errors(of[TPOT]), *_errors(of.get(TTFT)), *sizes, domain.fewest, versions))
    errors = ("n", "median", "p90", "ttft_n", "ttft_median", "ttft_p90")
    return _csv((*CONFIGURATION, *errors, *(one.name for one in fields(Domain)), "versions"), rows)


def _errors(row: Row | None) -> tuple[Any, ...]:
    return (0, "", "") if row is None else (row["n"], f"{row['median_error']:.4f}", f"{row['p90_error']:.4f}")


def errors_of(shipped: ClosedLoops) -> dict[Configuration, dict[str, Row]]:
    """By cross-validation, as `prebleexp.hardware.parameters` keeps them: of each metric."""
    found: dict[Configuration, dict[str, Row]] = {}
    for row in table(predict(shipped, shipped), predict_unseen(shipped, shipped)):
        unseen = row["model"] == "unseen" and row["gpu"] != SOME
        if (unseen or SOME not in (row["gpu"], row["model"])) and row["gpu"] != ALL:
            key = (row["gpu"], row["engine"], *(("any", "any") if unseen else (row["model"], row["precision"])))
            found.setdefault(key, {})[row["metric"]] = row
    return found


def _csv(heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return file.getvalue()
