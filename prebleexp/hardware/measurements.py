"""Measurements of serving engines, read from tables: measured/ beside this file, and others of the same columns. Raises
InvalidInput, which names file, row and column, for what cannot be a measurement."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from prebleexp.errors import InvalidInput, unknown
from prebleexp.hardware.domain import Domain
from prebleexp.hardware.equations import Array, Coefficients, closed_loop_s, coefficients, stack
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.model import KV_PRECISIONS, MOST, Model

SPELLED = {"bfloat16": "bf16", "fp16": "bf16", "fp8_block": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "int4_wo": "int4"}
"""other names of precisions"""
PRECISIONS = ("bf16", "fp8", "fp4", "int4")

CLOSED_LOOP = ("gpu", "engine", "model", "weights", "tp", "isl", "osl", "concurrency", "tpot_ms")
"""columns that there must be; the others are ttft_ms, held_steps, experts, kv, version, range, origin and date"""
OTHERS = {
    "version": "", "experts": "", "kv": "", "ep": "1", "range": "1", "origin": "own", "ttft_ms": "", "held_steps": "0",
    "date": "",
}  # fmt: skip
UNKNOWN = "aic"
"""origin of benchmarks of which it is not known how they began, and how their lengths were drawn"""
MOST_TTFT_CLIENTS = 32
"""beyond so many clients it is not known how a benchmark began, and TTFT depends on that"""


@dataclass(frozen=True)
class Sizes:
    """GPUs and models by the names that measurements call them."""

    gpus: Mapping[str, Gpu]
    models: Mapping[str, Model]

    def with_tables_of(self, folder: Path) -> Sizes:
        """And those that the folder's gpus.csv and models.csv add or change, where there are such files."""
        gpus = dict(self.gpus)
        for at, row in _optional(folder / "gpus.csv", ("gpu", "bf16_tflops", "hbm_gb_s", "hbm_gb_usable")):
            name = row["gpu"]
            nvlink = number(at, row, "nvlink_gb_s", 0.0, default="0")
            own = gpus.get(name)
            known = own or min(self.gpus.values(), key=lambda one: _unlike(one, nvlink))
            half = number(at, row, "bf16_tflops")
            eight = number(at, row, "fp8_tflops", 0.0, default="0")
            gpus[name] = Gpu(
                name=name,
                bf16_tflops=half,
                fp8_tflops=eight if eight > half else 0.0,
                fp4_tflops=number(at, row, "fp4_tflops", 0.0, default="0"),
                hbm_gb_s=number(at, row, "hbm_gb_s"),
                memory_gb=number(at, row, "hbm_gb_usable"),
                nvlink_gb_s=nvlink,
                all_reduce=known.all_reduce,
                sms=own.sms if own else Gpu.sms,
                attention=own.attention if own else (),
            )
        models = dict(self.models)
        required = ("model", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab")
        whole = {one.name for one in fields(Model) if one.type == "int"} - {"context_length"}
        for at, row in _optional(folder / "models.csv", required):
            name = row["model"]
            sizes = {one: int(number(at, row, one, 0.0, default="0")) for one in sorted(whole)}
            models[name] = Model(
                name=name,
                context_length=MOST,
                window_share=number(at, row, "window_share", 0.0, default="0"),
                chunked=number(at, row, "chunked", 0.0, default="0") != 0,
                gated=number(at, row, "ungated", 0.0, default="0") == 0,
                expert_precision=models[name].expert_precision if name in models else "",
                **sizes,
            )
        return Sizes(gpus, models)


def _unlike(gpu: Gpu, nvlink: float) -> float:
    """How far a GPU's links are from those of one that has none measured."""
    return abs(math.log1p(gpu.nvlink_gb_s) - math.log1p(nvlink)) if gpu.all_reduce else math.inf


@dataclass(frozen=True)
class ClosedLoops:
    """Benchmarks in which each client sends its next request when the last is answered; a row of each array is one."""

    labels: Mapping[str, NDArray[np.str_]]
    """gpu, engine, model, precision, experts (what theirs is), version, tp, origin, date and kv; and release, which is
    the version, as of all models that it serves"""
    of: Coefficients
    clients: Array
    prompt: Array
    output: Array
    shortest: Array
    """the shortest lengths, as a share of the longest; between them all are as likely, and the mean is as above"""
    tpot_s: Array
    ttft_s: Array
    """NaN where it is not known, or not known how the benchmark began"""
    held: Array
    """steps that the engine was set to keep a prompt waiting: to look for new ones only now and then, or to gather
    them; in `ttft_s`, and no property of engines as they come"""
    configuration: NDArray[np.str_]
    """all that was set, but for versions and dates"""

    def __len__(self) -> int:
        return len(self.tpot_s)

    def take(self, chosen: Any) -> ClosedLoops:
        return ClosedLoops(
            labels={name: values[chosen] for name, values in self.labels.items()},
            of=self.of.take(chosen),
            **{one.name: getattr(self, one.name)[chosen] for one in fields(self)[2:]},
        )

    def keys(self, names: Iterable[str]) -> list[tuple[str, ...]]:
        """Values of the columns `names` (GPU, engine, model …) for each measured loop, as texts."""
        columns = [self.labels[name] for name in names]
        return [tuple(str(column[row]) for column in columns) for row in range(len(self))]

    def predict(self, p: Mapping[str, Array]) -> tuple[Array, Array]:
        """(TPOT, TTFT) of each row by the formula, in seconds. `p`: the fields of `Parameters`, of each row."""
        return closed_loop_s(self.of, p, self.clients, self.prompt, self.output, self.shortest, self.held)

    def domain(self) -> Domain:
        """Of which sizes they are. A client waits for its first token for as long as is known, else not at all."""
        context = self.clients * (self.prompt + self.output / 2)
        longest = 2 * self.prompt / (1 + self.shortest)
        rate = self.clients / (np.nan_to_num(self.ttft_s) + self.output * self.tpot_s)
        requests, tokens, prompt = (round(float(each.max())) for each in (self.clients, context, longest))
        return Domain(requests, tokens, prompt, float(rate.max()), round(float(self.clients.min())))

    def fold(self, folds: int) -> NDArray[np.int64]:
        """Which one each row is in, by its configuration."""
        return np.array([zlib.crc32(one.encode()) % folds for one in self.configuration], dtype=np.int64)


def closed_loops(path: Path, sizes: Sizes) -> ClosedLoops:
    """The rows of a closed_loop.csv or closed_loop.csv.gz."""
    return loops_of(read(path, CLOSED_LOOP), sizes)


def loops_of(rows: Sequence[tuple[str, Mapping[str, str]]], sizes: Sizes) -> ClosedLoops:
    """Closed loops of measured rows, (where, columns) each, as `read` has them. Raises InvalidInput for no rows, or bad
    ones."""
    if not rows:
        raise InvalidInput("there is no closed loop to read: the table has no rows")
    made, numbers, texts, known = [], [], [], []
    for at, given in rows:
        row = OTHERS | {name: value for name, value in given.items() if value or name not in OTHERS}
        one = configured(at, row, sizes)
        made.append(one.coefficients(sizes))
        least = min(number(at, row, "range", 0.0), 1.0)
        clients, length = number(at, row, "concurrency", 1.0), (1 + least) / 2
        isl, osl = number(at, row, "isl", 1.0), number(at, row, "osl", 2.0)
        ttft = number(at, row, "ttft_ms", 0.0) if row["ttft_ms"] else 0.0
        began = row["origin"] != UNKNOWN and clients <= MOST_TTFT_CLIENTS and ttft > 0
        times = (number(at, row, "tpot_ms") / 1e3, ttft / 1e3 if began else math.nan)
        numbers.append((clients, isl * length, osl * length, least, *times, number(at, row, "held_steps", 0.0)))
        size = (one.gpu, row["engine"], one.model, one.weights, one.experts)
        texts.append((*size, row["version"], str(one.tp), row["origin"], row["date"], one.kv))
        known.append("|".join(map(str, (*size, one.tp, row["ep"], isl, osl, clients))))
    names = ("gpu", "engine", "model", "precision", "experts", "version", "tp", "origin", "date", "kv")
    labels = {name: np.array([text[i] for text in texts]) for i, name in enumerate(names)}
    labels["release"] = labels["version"]
    clients_, prompt, output, shortest, tpot, ttft_, held = np.array(numbers, dtype=np.float64).T
    return ClosedLoops(labels, stack(made), clients_, prompt, output, shortest, tpot, ttft_, held, np.array(known))


class Configured(NamedTuple):
    """What a measurement was done with, in the names that this package has."""

    gpu: str
    model: str
    tp: int
    weights: str
    experts: str
    kv: str

    def coefficients(self, sizes: Sizes) -> Coefficients:
        return coefficients(sizes.gpus[self.gpu], sizes.models[self.model], *self[2:])


def configured(at: str, row: Mapping[str, str], sizes: Sizes) -> Configured:
    """Of a row with gpu, model, tp and weights, and perhaps experts and kv."""
    gpu, model = _text(at, row, "gpu", sizes.gpus), _text(at, row, "model", sizes.models)
    tp = number(at, row, "tp", 1.0)
    weights = _precision(at, row, "weights")
    shape, device = sizes.models[model], sizes.gpus[gpu]
    if tp != 1 and tp not in device.groups:
        raise InvalidInput(f"{at}: tp={row['tp']} is not valid; of {gpu} it must be one of {_listed(device.groups)}")
    experts = shape.expert_precision or (_precision(at, row, "experts") if row.get("experts") else weights)
    # where nothing says in what the cache is: in 8 bits if weights are in fewer than 16, as InferenceX has it
    usual = "bf16" if weights == experts == "bf16" else "fp8"
    kv = _precision(at, row, "kv", KV_PRECISIONS) if row.get("kv") else usual
    return Configured(gpu, model, int(tp), weights, experts, kv)


def kv_capacities(path: Path, sizes: Sizes) -> Iterator[tuple[Gpu, Model, int, str, float]]:
    """GPU, model, number of GPUs, precision of the weights, and tokens of KV (in BF16) that an engine reported."""
    for at, row in read(path, ("gpu", "model", "tp", "weights", "kv_tokens")):
        gpu, model = sizes.gpus[_text(at, row, "gpu", sizes.gpus)], sizes.models[_text(at, row, "model", sizes.models)]
        yield (
            gpu,
            model,
            int(number(at, row, "tp", 1.0)),
            _precision(at, row, "weights"),
            number(at, row, "kv_tokens"),
        )


# ---------------------------------------------------------------- tables
def read(path: Path, required: Iterable[str]) -> list[tuple[str, dict[str, str]]]:
    """The rows of a CSV, plain or compressed, each with where it is."""
    try:
        with _opened(path) as file:
            reader = csv.DictReader(file, strict=True)
            names = reader.fieldnames or []
            for name in required:
                if name not in names:
                    raise InvalidInput(f"{path} has no column {name}; it has {', '.join(names) or 'none'}")
            rows = []
            for number, row in enumerate(reader, 2):
                if None in row or None in row.values():
                    raise InvalidInput(f"{path}, row {number}: it has not as many columns as the first line names")
                rows.append((f"{path}, row {number}", row))
            return rows
    except (OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error) as error:
        raise InvalidInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _opened(path: Path) -> IO[str]:
    return (
        cast("IO[str]", gzip.open(path, "rt", encoding="utf-8"))
        if path.suffix == ".gz"
        else path.open(encoding="utf-8")
    )


def heads(path: Path) -> list[str]:
    """The names of its columns; none where it cannot be read as one."""
    with suppress(OSError, EOFError, UnicodeDecodeError, csv.Error, zlib.error), _opened(path) as file:
        return list(csv.DictReader(file).fieldnames or [])
    return []


def found(folder: Path, name: str) -> Path | None:
    """The table of this name, compressed or not."""
    return next((path for path in (folder / f"{name}.csv.gz", folder / f"{name}.csv") if path.exists()), None)


def _optional(path: Path, required: Iterable[str]) -> list[tuple[str, dict[str, str]]]:
    return read(path, required) if path.exists() else []


def number(at: str, row: Mapping[str, str], name: str, least: float | None = None, default: str = "") -> float:
    """At least `least`; above 0 without one."""
    text = row.get(name) or default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and (value > 0 if least is None else value >= least)):
        valid = "a number above 0" if least is None else f"a number from {least:g}"
        raise InvalidInput(f"{at}: {name}={text} is not valid; it must be {valid}")
    return value


def _text(at: str, row: Mapping[str, str], name: str, valid: Mapping[str, Any]) -> str:
    value = row[name]
    if value not in valid:
        raise InvalidInput(f"{at}: {unknown(name, value, valid)}")
    return value


def _precision(at: str, row: Mapping[str, str], name: str, valid: Sequence[str] = PRECISIONS) -> str:
    value = row[name]
    value = "fp4" if value.endswith("mxfp4") else SPELLED.get(value, value)
    if value not in valid:
        raise InvalidInput(f"{at}: {unknown(name, row[name], valid)}")
    return value


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))
