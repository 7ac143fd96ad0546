"""A cell checks itself, says what it stands for, and is a row of a table."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import NUMBERS, SPECS, Cell
from prebleexp.launch import configure, specs
from prebleexp.policies.base import Policy


def cell(*overrides: str) -> Cell:
    return configure.cells(list(overrides))[0]


@pytest.mark.parametrize(
    ("name", "values", "valid"),
    [
        ("gpus", (0, -1, 4097, 8.0, True, "8", None, math.nan), "an integer from 1 to 4096"),
        ("rps", (0, -1, math.nan, math.inf, True, "64", None), "a finite number > 0"),
        ("duration_s", (0, -0.5, math.nan, math.inf, False, "30"), "a finite number > 0"),
        ("horizon", ("", "Drain", None, 1, ["drain"]), "drain or stop"),
        ("seed", (-1, 2**63, 0.0, True, "0", None), "an integer from 0 to 2^63 - 1"),
    ],
)
def test_a_value_that_is_not_valid_gets_one_line(name: str, values: tuple[Any, ...], valid: str) -> None:
    for value in values:
        with pytest.raises(InvalidInput) as caught:
            replace(cell(), **{name: value})
        assert str(caught.value) == f"{name}={value} is not valid; it must be {valid}"


def test_the_ends_of_the_ranges_are_valid() -> None:
    for values in ({"gpus": 1, "seed": 0, "rps": 5e-324}, {"gpus": 4096, "seed": 2**63 - 1, "duration_s": 1e308}):
        assert replace(cell(), **values).identity().items() >= values.items()


def test_the_identity_has_every_default_and_is_json() -> None:
    found = cell("policy=random").identity()  # random reads no lengths, and nothing is promised
    assert list(found) == [*NUMBERS, *(name for name in SPECS if name not in ("lengths", "slo"))]
    assert "lengths" in cell("policy=e2").identity()
    assert "slo" in cell("slo=agents").identity()
    assert found["policy"] == {"_target_": "prebleexp.policies.random.Random", "seed": None}
    assert found["output_length"] == {
        "_target_": "prebleexp.workloads.output_length.OutputLength",
        "lengths": (1, 300),
        "probabilities": (0.5, 0.5),
    }
    json.dumps(found, allow_nan=False)
    assert "source" not in found["hardware"]  # type: ignore[operator]


def test_a_trace_stands_for_its_contents_and_not_for_rate_and_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 5, "output_length": 3, "hash_ids": [1]}\n')
    one = cell("workload=mooncake", f"workload.path={trace}", "workload.load=recorded")
    found = one.identity()
    assert not {"rps", "output_length"} & found.keys()
    assert str(trace) not in json.dumps(found)
    assert replace(one, rps=1, seed=9).stream == one.stream


def test_what_a_stream_depends_on() -> None:
    one = cell("policy=lor", "gpus=4")
    assert cell("policy=random", "gpus=8", "horizon=stop", "engine=released").stream == one.stream
    for other in ("seed=1", "rps=3", "duration_s=1", "workload.groups=2", "output_length=constant"):
        assert cell("policy=lor", "gpus=4", other).stream != one.stream


def test_another_seed_is_all_that_differs() -> None:
    one = cell()
    assert one.stream != one.with_seed(7).stream
    assert one.with_seed(7) == replace(one, seed=7)
    assert vars(one.with_seed(7)).keys() <= {*vars(replace(one, seed=7)), *vars(one)}
    with pytest.raises(InvalidInput, match="seed=-1 is not valid"):
        one.with_seed(-1)


def test_columns_are_flat() -> None:
    row = cell("policy=random", "policy.seed=7").columns()
    assert row["policy"] == "random"
    assert row["policy.seed"] == 7
    assert row["output_length"] == "two_point"
    assert row["output_length.lengths"] == "[1, 300]"
    assert "hardware.source" not in row
    assert {type(value) for value in row.values()} <= {int, float, str, bool, type(None)}


def test_names_are_not_compared_and_a_cell_travels() -> None:
    one = cell()
    renamed = replace(one, names={"policy": "mine"})
    assert renamed == one
    assert hash(renamed) == hash(one)
    assert renamed.columns()["policy"] == "mine"
    assert replace(one, names={}).columns()["policy"] == "LeastOutstanding"
    assert pickle.loads(pickle.dumps(renamed)).columns() == renamed.columns()


# ---------------------------------------------------------------- fields of own classes
@dataclass(frozen=True)
class Slack(Policy):
    """Its class checks nothing."""

    slack: int = 4
    share: float = 0.5
    strict: bool = False

    def route(self, mine: Any, view: Any, request: int, now: float) -> int:
        return 0


@pytest.mark.parametrize(
    ("field", "value", "valid"),
    [
        ("slack", "four", "a whole number"),
        ("slack", 2.5, "a whole number"),
        ("slack", True, "a whole number"),
        ("share", "half", "a number"),
        ("strict", 1, "true or false"),
    ],
)
def test_a_value_that_an_own_class_lets_pass_is_refused_by_its_field(field: str, value: Any, valid: str) -> None:
    """Compiled code said "unknown attribute", or took 2.5 for a whole number."""
    with pytest.raises(InvalidInput, match=rf"policy\.{field}={value} is not valid; it must be {valid}"):
        specs.build("policy", "slack", {"_target_": f"{__name__}.Slack", field: value})
    assert specs.build("policy", "slack", {"_target_": f"{__name__}.Slack", "share": 1}) == Slack(share=1)
