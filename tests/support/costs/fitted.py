"""Cost models of conf/hardware that are fitted to one GPU."""

from __future__ import annotations

import yaml

from prebleexp.hardware.preble import PrebleFit
from tests.support.places import ROOT


def hardware(name: str) -> PrebleFit:
    """The one of conf/hardware."""
    fields = yaml.safe_load((ROOT / "conf" / "hardware" / f"{name}.yaml").read_text(encoding="utf-8"))
    return PrebleFit(**{field: value for field, value in fields.items() if field != "_target_"})


A6000 = hardware("a6000_mistral_7b")
MONOTONE = hardware("a6000_mistral_7b_monotone")  # the fitted one takes less than no time for some batches
