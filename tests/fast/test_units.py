"""Times with a unit, and limits whose unit is improbable."""

from __future__ import annotations

from typing import Any

import pytest

import prebleexp
from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from prebleexp.launch.units import in_seconds
from prebleexp.service.doubtful import doubts
from prebleexp.service.level import ServiceLevel
from tests.support.places import ROOT


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("slo.ttft_s=500ms", 0.5),
        ("slo.ttft_s=.5s", 0.5),
        ("slo.ttft_s=250us", 0.00025),
        ("slo.ttft_s='1.5 min'", 90.0),
        ("slo.ttft_s=0.5", 0.5),
    ],
)
def test_a_limit_is_read_with_its_unit(line: str, seconds: float) -> None:
    with_unit, plain = (configure.cells([one])[0].slo for one in (line, f"slo.ttft_s={seconds}"))
    assert with_unit.ttft_s == seconds
    assert with_unit == plain


def test_limits_of_shares_and_other_times_are_read_too() -> None:
    cell = configure.cells(
        ["slo.tpot_s={p95: 50ms, p99: 0.1}", "duration_s=2min", "slo.warmup_s=30s", "reports_ms=.5s"]
    )
    (cell,) = cell
    assert cell.slo.tpot_s == (("p95", 0.05), ("p99", 0.1))
    assert (cell.duration_s, cell.slo.warmup_s, cell.reports_ms) == (120, 30, 500)


def test_what_is_no_time_stays_as_it_is() -> None:
    values: dict[str, Any] = {"policy": {"name": "500ms"}, "path": "5s", "is_s": [1, "2s"], "rps": 3, "ttft_s": None}
    assert in_seconds(values) == values


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("slo.ttft_s=5kg", "slo.ttft_s=5kg"),
        ("slo.tpot_s={p95: 5kg}", "slo.tpot_s=5kg"),
        ("duration_s=5kg", "duration_s=5kg"),
        ("workload.gap_cap_s=5kg", "workload.gap_cap_s=5kg"),
    ],
)
def test_a_unit_that_is_none_is_said_under_the_name_of_its_key(line: str, name: str) -> None:
    own = ["workload=mooncake", "workload.path=none.jsonl"] if line.startswith("workload") else []
    with pytest.raises(InvalidInput) as refused:
        configure.cells([*own, line])
    assert str(refused.value) == f"{name} is not valid; units are us, µs, ms, s, min, h"


def test_python_reads_it_too() -> None:
    given = dict.fromkeys(["slo.ttft_s"], "500ms")
    ends = [prebleexp.run(gpus=1, rps=1, duration_s=5, **one) for one in (given, {"slo.ttft_s": 0.5})]
    assert ends[0].metrics["slo_attainment"] == ends[1].metrics["slo_attainment"]


@pytest.mark.parametrize(
    ("level", "said"),
    [
        ({"ttft_s": 500.0}, "500 seconds to a first token are improbable; if milliseconds are meant, say "
         "slo.ttft_s=500ms"),
        ({"tpot_s": {"p95": 50.0}}, "50 seconds per output token are improbable; if milliseconds are meant, say "
         "slo.tpot_s={p95: 50ms}"),
        ({"latency_s": 30_000.0}, "say slo.latency_s=30000ms"),
    ],
)  # fmt: skip
def test_limits_that_nobody_promises_are_said(level: dict[str, Any], said: str) -> None:
    (found,) = doubts(ServiceLevel(**level))
    assert said in found


def test_presets_are_probable() -> None:
    names = [file.stem for file in (ROOT / "conf" / "slo").glob("*.yaml")]
    assert len(names) > 20
    assert [one for name in names for one in doubts(configure.cells([f"slo={name}"])[0].slo)] == []


def test_a_run_says_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["gpus=1", "rps=1", "duration_s=5", "slo.ttft_s=500", "report=none"]) == 0
    assert "prebleexp: 500 seconds to a first token are improbable" in capsys.readouterr().err


def test_a_target_may_be_a_percentage() -> None:
    assert in_seconds({"slo": {"target": "95%", "ttft_s": "500ms"}}) == {"slo": {"target": 0.95, "ttft_s": 0.5}}
