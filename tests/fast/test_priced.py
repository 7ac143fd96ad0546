"""What runs cost is what was counted by hand: hours of all GPUs, at the price of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prebleexp.__main__ import main

RUN = ("rps=4", "duration_s=5", "report=none")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("settings", "price", "an_hour"),
    [
        (("gpus=1",), "3", 3.0),
        (("gpus=4", "hardware.tensor_parallel=2"), "3", 12.0),
        (("replicas=4", "hardware.tensor_parallel=2"), "2.5", 20.0),
        (("gpus=3", "hardware/gpu=h100"), "{h100:2,h200:4}", 6.0),
        (("cluster=two_kinds",), "1", 8.0),
    ],
)
def test_a_runs_cost_is_its_hours_times_its_price(
    settings: tuple[str, ...], price: str, an_hour: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*settings, *RUN[:2], f"price_per_gpu_hour={price}", "output=json"]) == 0
    row = json.loads(capsys.readouterr().out)[0]
    assert row["cost"] == pytest.approx(an_hour * row["gpu_hours"] / row["gpus"], rel=1e-12)


def test_the_table_says_it_and_only_if_there_is_a_price(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus=2", *RUN[:2], "price_per_gpu_hour=3"]) == 0
    said = capsys.readouterr().out
    assert " GPU-hours at price_per_gpu_hour=3\n" in said
    assert main(["gpus=2", *RUN[:2]]) == 0
    assert "cost" not in capsys.readouterr().out
    assert main(["-m", "gpus=2,4", *RUN, "price_per_gpu_hour=3"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    at = lines[0].index("cost")
    assert 1.9 < float(lines[2][at]) / float(lines[1][at]) < 2.1


def test_a_price_changes_no_key_and_a_kind_without_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    keys = []
    for price in ((), ("price_per_gpu_hour=3",)):
        assert main(["gpus=1", *RUN[:2], *price, "output=json"]) == 0
        keys.append(json.loads(capsys.readouterr().out)[0]["key"])
    assert keys[0] == keys[1]
    assert main(["gpus=1", *RUN[:2], "price_per_gpu_hour={h100:3}"]) == 2
    assert "has no price of h200" in capsys.readouterr().err
    assert main(["gpus=1", *RUN[:2], "price_per_gpu_hour=-1"]) == 2
    assert "price_per_gpu_hour=-1" in capsys.readouterr().err
