"""Rows of a log that are asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prebleexp.errors import InvalidInput
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.request_log import RequestLog

ROWS = [
    {"ts": i, "prompt_tokens": 100 + i, "completion_tokens": 5, "request": {"model": "ab"[i % 2], "region": "eu"}}
    for i in range(6)
]


def log(folder: Path, only: Any = None) -> RequestLog:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return RequestLog(str(path), load="recorded", only=only)


def prompts(source: RequestLog) -> list[int]:
    drawn = source.draw(rps=1, duration_s=1, seed=0, output_length=OutputLength((1,), (1.0,)))
    return [int(one) for one in drawn.prompt_tokens]


def taken(folder: Path, only: Any) -> list[int]:
    return prompts(log(folder, only))


def test_rows_of_one_model_are_taken_and_the_others_counted(tmp_path: Path) -> None:
    one = log(tmp_path, {"model": "b"})
    assert prompts(one) == [101, 103, 105]
    assert "3 of 6 rows, of which request.model is not b (the first is row 1)" in str(one.understood.facts)
    assert not any("models" in doubt for doubt in one.understood.doubts), "there is one left"
    every = log(tmp_path)
    assert any("'workload.only={request.model: a}' leaves the others out" in doubt for doubt in every.understood.doubts)
    assert taken(tmp_path, {"request.model": "a"}) == [100, 102, 104], "as the doubt has it"


def test_of_several_values_each_does_and_of_several_fields_all_must(tmp_path: Path) -> None:
    assert taken(tmp_path, {"model": ["a", "b"], "region": "eu"}) == [*range(100, 106)]
    assert taken(tmp_path, {"prompt_tokens": [101, 102], "model": "a"}) == [102], "numbers are compared as text"
    assert hash(log(tmp_path, {"model": ["a"]})) == hash(log(tmp_path, {"model": "a"}))


@pytest.mark.parametrize(
    ("only", "says"),
    [
        ({"model": "c"}, r"unknown request\.model in workload\.only: 'c'; valid: a, b"),
        ({"modell": "a"}, r"unknown field of workload\.only: 'modell'"),
        ({"model": None}, r"workload\.only=\{'model': None\} is not valid; it must be fields and values"),
        ("a", r"workload\.only=a is not valid"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(tmp_path: Path, only: Any, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        taken(tmp_path, only)
