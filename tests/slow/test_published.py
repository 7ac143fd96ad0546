"""Published results once more: what Splitwise's clusters carry in its own simulator and under vLLM, at loads on both
sides of the answers in docs/validation.md."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml

from prebleexp.experiment.runs import run
from prebleexp.launch import configure
from prebleexp.planning.contender import Contender
from prebleexp.planning.trials import Trial
from tests.support.places import ROOT

pytestmark = pytest.mark.slow
SWEEP = yaml.safe_load((ROOT / "sweeps" / "published_splitwise.yaml").read_text(encoding="utf-8"))
SEEDS = 4
CARRIED = {
    ("own_conversations_power", "A100"): 110,
    ("own_conversations_power", "H100"): 229,
    ("own_conversations_power", "AA"): 232,
    ("own_conversations_power", "HH"): 278,
    ("own_conversations_cost", "HA"): 323,
    ("own_code_power", "A100"): 59.8,
    ("own_code_power", "H100"): 86.4,
    ("own_code_power", "AA"): 151,
    ("own_code_power", "HH"): 184,
    ("core_conversations_power", "A100"): 103,
    ("core_conversations_power", "H100"): 249,
    ("core_conversations_power", "AA"): 198,
    ("core_conversations_power", "HH"): 332,
    ("core_conversations_cost", "HA"): 177,
    ("core_code_power", "A100"): 94.0,
    ("core_code_power", "H100"): 134,
    ("core_code_power", "AA"): 152,
    ("core_code_power", "HH"): 243,
}
"""requests/s, by part and line"""


def contender(part: str, line: str) -> Contender:
    own: dict[str, Any] = SWEEP["sweep"]["parts"][part]
    usual = ["workload=azure_lengths", "slo=splitwise", f"slo.warmup_s={SWEEP['slo']['warmup_s']}"]
    return Contender(configure.cells([*usual, *own["overrides"], *own["lines"][line]])[0], "rps")


@pytest.mark.parametrize(("part", "line"), CARRIED, ids=" ".join)
def test_a_cluster_keeps_all_nine_limits_at_a_twentieth_less_and_not_at_a_twentieth_more(part: str, line: str) -> None:
    one = contender(part, line)
    margins = []
    for load in (CARRIED[part, line] / 1.05, CARRIED[part, line] * 1.05):
        samples = [
            one.sample(run(one.cell_of(Trial(load, seed, SWEEP["sweep"]["plan"]["requests"]))).metrics).kept
            for seed in range(SEEDS)
        ]
        margins.append(math.fsum(samples) / SEEDS)
    assert margins[0] >= 0 > margins[1]
