"""Records among the columns of keys, as people say them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prebleexp.records import columns, named

H100 = {"name": "h100", "hbm_gb_s": 3350, "all_reduce": [[2, 4.3]]}
A100 = {"name": "a100", "hbm_gb_s": 2039, "all_reduce": [[2, 5.1]]}
FASTER = H100 | {"hbm_gb_s": 4000}


def said(*records: Any) -> list[dict[str, Any]]:
    return named([{"gpus": 2, "hardware.gpu": one if isinstance(one, str) else json.dumps(one)} for one in records])


def test_a_record_with_a_name_is_its_name() -> None:
    assert said(H100, A100, H100) == [{"gpus": 2, "hardware.gpu": name} for name in ("h100", "a100", "h100")]


def test_numbers_in_which_those_of_one_name_differ_are_columns() -> None:
    found = said(H100, FASTER, A100)
    assert [one["hardware.gpu"] for one in found] == ["h100", "h100", "a100"]
    assert [one["hardware.gpu.hbm_gb_s"] for one in found] == [3350, 4000, 2039]
    assert all(len(one) == 3 for one in found), "what is the same in all of one name is not said"


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ([["p95", 1], ["p99", 2.5]], "{p95: 1, p99: 2.5}"),
        ({"zipf": 1.2}, "{zipf: 1.2}"),
        ([{"gpus": 4, "role": "prefill", "hardware": {"gpu": H100}}, {"gpus": 2, "role": "decode",
           "hardware": {"_target_": "prebleexp.hardware.fits.Fit"}}], "4 h100 for prefill + 2 Fit for decode"),
        ([1, 2, 4], "[1, 2, 4]"),
        ([], "[]"),
        ("[no JSON", "[no JSON"),
        ("lor", "lor"),
    ],
)  # fmt: skip
def test_other_records_are_as_people_write_them(record: Any, words: str) -> None:
    assert said(record) == [{"gpus": 2, "hardware.gpu": words}]


def test_words_that_do_not_tell_records_apart_are_not_used() -> None:
    """Two groups of the same GPUs that serve other models."""
    texts = [json.dumps([{"gpus": 1, "hardware": {"gpu": H100, "model": {"name": name}}}]) for name in ("a", "b")]
    assert [one["hardware.gpu"] for one in said(*texts)] == texts


def test_what_may_be_asked_for_is_the_name_and_each_number() -> None:
    found = columns("hardware.gpu", json.dumps(H100))
    assert found == {"hardware.gpu": "h100", "hardware.gpu.hbm_gb_s": 3350, "hardware.gpu.all_reduce": "[[2, 4.3]]"}
    assert columns("rps", 4) == {"rps": 4}
