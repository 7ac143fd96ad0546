"""The JSON that `vllm bench serve --save-result` writes, and where."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from prebleexp.vllm_bench.flags import Pasted
from prebleexp.vllm_bench.result import DETAILS, Result
from prebleexp.workloads.vllm_bench import VllmBench


def fields_of(pasted: Pasted, source: VllmBench, found: Result, model: str, date: datetime) -> dict[str, Any]:
    """All of it, in the tool's order."""
    model = pasted.model or model
    head: dict[str, Any] = {
        "date": f"{date:%Y%m%d-%H%M%S}",
        "endpoint_type": pasted.backend,
        "backend": pasted.backend,
        "label": pasted.label,
        "model_id": model,
        "tokenizer_id": (pasted.tokenizer or model) if pasted.wanted.counts_tokens else None,
        "num_prompts": source.num_prompts,
        **pasted.metadata,
        "request_rate": source.request_rate,
        "burstiness": source.burstiness,
        "max_concurrency": source.max_concurrency,
    }
    if source.ramp_up_strategy is not None:
        for name in ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps"):
            head[name] = getattr(source, name)
    left_out = () if pasted.detailed else DETAILS
    return head | {name: value for name, value in found.fields.items() if name not in left_out}


def path_of(pasted: Pasted, source: VllmBench, model: str, date: datetime) -> Path:
    """The path of the result's file, named as `vllm bench serve --save-result` names it."""
    rate = f"{source.request_rate}qps"
    if source.ramp_up_strategy is not None:
        ends = f"{source.ramp_up_start_rps}qps-{source.ramp_up_end_rps}qps"
        rate = f"ramp-up-{source.ramp_up_strategy}-{ends}"
    most = "" if source.max_concurrency is None else f"-concurrency{source.max_concurrency}"
    model = (pasted.model or model).rpartition("/")[2]
    name = pasted.file or f"{pasted.label or pasted.backend}-{rate}{most}-{model}-{date:%Y%m%d-%H%M%S}.json"
    return Path(pasted.folder or "", name).expanduser()
