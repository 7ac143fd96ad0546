"""Whether the model of a measured result is the one that is simulated: names alone tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prebleexp.hardware.same_shape import letters, of_shape
from prebleexp.launch import places

MODELS = "hardware/model"


def another_model(fields: Mapping[str, Any], simulated: str) -> list[str]:
    """A sentence, if the file names a model that is not called like `simulated`; else none. A longer name is the same
    model: meta-llama/Llama-3.1-70B-Instruct is llama-3.1-70b. So is one of the same shape, as Llama-3.3-70B."""
    measured = fields.get("model_id")
    if not isinstance(measured, str) or not measured or letters(simulated) in letters(measured):
        return []
    alike = of_shape(measured)
    if alike is not None and letters(alike) == letters(simulated):
        return []
    options = [one for one in places.options(MODELS) if letters(one) in letters(measured) or one == alike]
    way_out = f"; say {MODELS}={max(options, key=len)}" if options else ""
    return [f"the file is of {measured}, and {simulated} is simulated: numbers of two models are compared{way_out}"]
