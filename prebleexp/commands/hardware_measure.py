"""`python -m prebleexp hardware measure`: take the times of a model's parts and steps on the GPU at hand, into a file
that `hardware check` and `calibrate hardware` read."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from prebleexp.commands.arguments import Command, Given, path, text
from prebleexp.errors import InvalidInput, unknown
from prebleexp.experiment import durable
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.model import Model
from prebleexp.launch import configs
from prebleexp.launch.from_cache import Options

if TYPE_CHECKING:
    from prebleexp.hardware.measure import Measured


def measure(given: Given) -> int:
    """Raises InvalidInput for a model or GPU that is not in the tables, is not there, or has no room."""
    try:
        import torch

        from prebleexp.hardware.measure import measured
    except ImportError as error:
        raise InvalidInput("measuring needs PyTorch: pip install 'prebleexp[predict]'") from error
    options = Options(configs.loader())
    model = Model(**_chosen(options, "model", given["model"]))
    if model.experts or model.mla_latent or not model.gated:
        raise InvalidInput(
            f"{model.name} cannot be measured: only dense models with grouped-query attention and a gated FFN can, "
            "such as llama_3_1_8b"
        )
    gpu = Gpu(**_chosen(options, "gpu", given["gpu"])).name
    device = _device(torch, given["device"])
    size = {
        "gpu": gpu,
        "engine": "torch",
        "version": torch.__version__,
        "model": model.name,
        "weights": "bf16",
        "tp": 1,
    }
    rows = [size | asdict(one) for one in _said(measured(model, device))]
    durable.write(given["to"], _csv(rows))
    print(given["to"])
    return 0


def _chosen(options: Options, group: str, name: str | None) -> dict[str, Any]:
    valid = options.configs(f"hardware/{group}")
    if name not in valid:
        raise unknown(group, name or "", valid)
    return dict(valid[name])


def _device(torch: Any, name: str) -> Any:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        there = ["cpu", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
        raise InvalidInput(f"device={name} cannot be used here; there are: {', '.join(there)}") from error
    return device


def _said(points: Iterator[Measured]) -> Iterator[Measured]:
    """Say of each what it took: a few minutes pass."""
    for one in points:
        where = f"{one.new} new tokens, {one.context:,} of context" if one.context else f"{one.new} new tokens"
        print(f"{one.what}: {where}: {one.us:,.0f} us", file=sys.stderr, flush=True)
        yield one


def _csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


MEASURE = Command(
    "measure a model's linear layers, attention, prefills and decodes on the GPU at hand; a few minutes",
    measure,
    "python -m prebleexp hardware measure gpu=h100 model=llama_3_1_8b to=measured.csv",
    settings=(
        text("gpu", "which of conf/hardware/gpu/ it is"),
        text("model", "which of conf/hardware/model/; its weights are random"),
        text("device", "as PyTorch calls it", "cuda"),
        path("to", "the file with what was measured", "measured.csv"),
    ),
)
