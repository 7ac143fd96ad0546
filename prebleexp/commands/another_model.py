"""Whether the model of a measured result is the one that is simulated: names alone tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from prebleexp.launch import places

MODELS = "hardware/model"


def another_model(fields: Mapping[str, Any], simulated: str) -> list[str]:
    """A sentence, if the file names a model that is not called like `simulated`; else none. A longer name is the same
    model: meta-llama/Llama-3.1-70B-Instruct is llama-3.1-70b."""
    measured = fields.get("model_id")
    if not isinstance(measured, str) or not measured or _letters(simulated) in _letters(measured):
        return []
    options = [one for one in places.options(MODELS) if _letters(one) in _letters(measured)]
    way_out = f"; say {MODELS}={max(options, key=len)}" if options else ""
    return [f"the file is of {measured}, and {simulated} is simulated: numbers of two models are compared{way_out}"]


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
