"""What the default settings of policies cost: chosen by one half of the seeds, measured by the other."""

from __future__ import annotations

import re
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from prebleexp.launch import configure, tuning
from prebleexp.policies.base import Range
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import figure
from prebleexp.report.measures import DRAWINGS
from prebleexp.report.summary import Row
from prebleexp.report.tuning import BEST, WORST, with_change
from tests.support.places import ROOT, names

TRIED = {0.1: [1.0, 1.0, 1.0, 1.0], 0.2: [0.5, 0.5, 0.8, 0.8], 0.4: [0.7, 0.7, 0.6, 0.6], 0.8: [3.0, 3.0, 2.0, 2.0]}
"""latency by the setting, in the order in which it was tried, and the seed"""


def rows() -> list[Row]:
    return [
        {"policy": "p", "policy.share": share, "seed": seed, "norm_latency_mean_s": latency, "n_requests": 1}
        for share, latencies in TRIED.items()
        for seed, latency in enumerate(latencies)
    ]


def test_the_setting_is_chosen_by_seeds_that_do_not_measure_it() -> None:
    found = with_change(rows())
    by = {(row["tried"], row["seed"]): (row["settings"], row["change"]) for row in found}
    assert by == {
        (BEST, 2): ("share=0.200", pytest.approx(-20)),
        (BEST, 3): ("share=0.200", pytest.approx(-20)),
        (WORST, 2): ("share=0.800", pytest.approx(100)),
        (WORST, 3): ("share=0.800", pytest.approx(100)),
    }


def test_the_page_says_what_the_default_costs() -> None:
    made = figure("tuning", rows(), how=DRAWINGS["tuning"], drawings=Drawings())
    assert made.headline == "The default of p costs 25 % against share=0.200."
    (name, (change, settings)) = made.answer.rows[0]
    assert (name, change.word, change.numbers, settings.numbers) == ("p", "gains", "−20 %", "share=0.200")
    alone = figure("tuning", rows()[:4], how=DRAWINGS["tuning"], drawings=Drawings())
    assert alone.headline == "Nothing that was tried is surely better than the default of p."


class Trial:
    """What a search space needs of Optuna's."""

    def __init__(self, study: Any, policy: str) -> None:
        self.study, self.number, self.params = study, len(study.trials), dict[str, Any](policy=policy)
        self.user_attrs: dict[str, Any] = {}
        study.trials.append(self)

    def suggest_float(self, name: str, low: float, high: float, log: bool) -> None:
        self.params[name] = float(high)

    def suggest_int(self, name: str, low: int, high: int, log: bool) -> None:
        assert int(low) == low
        assert int(high) == high
        self.params[name] = high

    def suggest_categorical(self, name: str, among: list[Any]) -> None:
        self.params[name] = among[-1]


def ranges(policy: str) -> dict[str, Range]:
    given = "policy.path=x.npz" if policy == "replay" else "seed=0"
    kind = configure.cells([f"policy={policy}", given])[0].policy
    return {f"policy.{one.name}": one.metadata["tuned"] for one in fields(kind) if "tuned" in one.metadata}


@pytest.mark.parametrize("policy", [name for name in names("policy") if name != "replay"])
def test_the_first_trial_of_each_policy_is_its_default_and_all_others_are_valid(policy: str) -> None:
    """Both ends of every range make a policy that is one."""
    study = SimpleNamespace(trials=[])
    Trial(study, "another")
    first, second = Trial(study, policy), Trial(study, policy)
    tuning.suggest(None, first)
    tuning.suggest(None, second)
    assert set(first.params) == {"policy"}
    assert set(second.params) == {"policy", *ranges(policy)}
    configure.cells([f"{name}={value}" for name, value in second.params.items()])
    low = {name: one.among[0] if one.among else one.low for name, one in ranges(policy).items()}
    configure.cells([f"policy={policy}", *(f"{name}={value}" for name, value in low.items())])


def test_the_sweep_is_of_all_policies_that_have_something_to_tune() -> None:
    sweep = yaml.safe_load((ROOT / "sweeps" / "tuning.yaml").read_text(encoding="utf-8"))
    chosen = re.findall(r"\w+", sweep["hydra"]["sweeper"]["params"]["policy"].removeprefix("choice"))
    assert sorted(chosen) == [name for name in sorted(names("policy")) if name != "replay" and ranges(name)]


def test_a_name_stands_for_one_kind_of_range() -> None:
    """Optuna's trials are of one study, where a name has one kind of distribution."""
    kinds: dict[str, set[object]] = {}
    for policy in names("policy"):
        if policy == "replay":
            continue
        own = {one.name: one for one in fields(configure.cells([f"policy={policy}"])[0].policy)}
        for name, one in ranges(policy).items():
            default = own[name.removeprefix("policy.")].default
            kinds.setdefault(name, set()).add(one.among or isinstance(default, int))
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}
