"""What Optuna tries of a router: what its fields say is worth a try (`prebleexp.policies.base.tuned`)."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from prebleexp.launch import configure
from prebleexp.policies.base import Range


def suggest(config: Any, trial: Any) -> None:
    """Choose the settings of a trial's policy: all as they are in the first trial of each, so that there is something
    to compare with. `config` is Hydra's, `trial` Optuna's."""
    name = _policy(trial)
    if all(_policy(other) != name for other in trial.study.trials if other.number < trial.number):
        return
    for field in fields(configure.cells([f"policy={name}"])[0].policy):
        if (range_ := field.metadata.get("tuned")) is not None:
            _suggest(trial, f"policy.{field.name}", field.default, range_)


def _suggest(trial: Any, key: str, default: Any, range_: Range) -> None:
    if range_.among:
        trial.suggest_categorical(key, list(range_.among))
    elif isinstance(default, int):
        trial.suggest_int(key, range_.low, range_.high, log=range_.log)
    else:
        trial.suggest_float(key, range_.low, range_.high, log=range_.log)


def _policy(trial: Any) -> Any:
    return trial.params.get("policy", trial.user_attrs.get("policy"))
