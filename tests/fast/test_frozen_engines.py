"""Public simulators that bring more than an engine: what holds of each of them."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import prebleexp
from prebleexp.engines.base import Engine
from prebleexp.engines.dynamo_replay.engine import DynamoReplay
from prebleexp.engines.splitwise.engine import Splitwise
from prebleexp.errors import InvalidInput
from tests.support.places import ROOT

SIMULATORS = {"splitwise": Splitwise, "dynamo_replay": DynamoReplay}


@pytest.mark.parametrize("engine", SIMULATORS)
def test_reports_are_always_fresh(engine: str) -> None:
    settings: dict[str, Any] = {"replicas": 2, "rps": 2, "duration_s": 1, "reports_ms": 50, "cache_dir": None}
    with pytest.raises(InvalidInput, match=rf"^reports_ms=50 is not valid with engine={engine}; it must be 0$"):
        prebleexp.run(engine=engine, **settings)


@pytest.mark.parametrize("engine", SIMULATORS.values())
def test_the_defaults_that_stand_for_what_it_brings_are_those_of_the_configuration(engine: type[Engine]) -> None:
    text = (ROOT / "conf" / "config.yaml").read_text(encoding="utf-8")
    defaults = {
        group: name for one in yaml.safe_load(text)["defaults"] if isinstance(one, dict) for group, name in one.items()
    }
    assert {group: defaults[group] for group in engine.brings} == engine.brings
