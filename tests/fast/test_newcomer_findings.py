"""What three newcomers stumbled over (findings 1 to 19 of their review), again: which test shows each, and what is not
tested where it belongs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from prebleexp.__main__ import main
from prebleexp.api.picture import Picture
from prebleexp.commands.another_model import another_model
from prebleexp.errors import InvalidInput
from prebleexp.experiment import backends
from prebleexp.hardware import same_shape
from prebleexp.launch import places
from prebleexp.launch.naming import page
from prebleexp.metrics import METRICS
from prebleexp.paper import quality
from prebleexp.report.answer import Tone
from prebleexp.report.figures import figure
from prebleexp.report.summary import Point, Row
from tests.support.places import ROOT

TINY = ("gpus=2", "rps=4", "duration_s=2", "report=none")
OWN = """
from dataclasses import dataclass
from prebleexp.policies.base import Policy

@dataclass(frozen=True)
class Mix(Policy):
    weight: float = 1.0
    reads_lengths = False

    def route(self, mine, view, request, now):
        return view.candidates[0]
"""

SHOWN = {
    "1: GPUs and their price": {
        "counting": ("gpus_hours_and_price_are_those_counted_by_hand", "contenders_are_ordered_by_gpus_or_by_money"),
    },
    "2: a plan's answer": {
        "plan_beside": (
            *("a_caveat_is_there_once_with_those_that_it_is_of", "contenders_are_called_what_they_differ_by"),
            *("who_needs_as_many_is_said_once", "contenders_of_several_loads_are_not_compared"),
        ),
    },
    "3: how much to believe": {
        "plan_beside": ("steps_are_slower_by_just_so_much", "what_is_said_besides_is_what_runs_say"),
        "compare_bench": ("the_cause_is_what_was_made_another",),
        "calibrated_ladders": ("what_became_worse_is_said_however_good_the_median_is",),
    },
    "4: units": {
        "units": ("limits_that_nobody_promises_are_said", "a_limit_is_read_with_its_unit"),
        "inputs": ("a_time_since_1970_is_in_the_one_unit_in_which_it_can_be",),
    },
    "5: tuning": {
        "tuned": ("a_best_value_at_the_edge_is_said_to_be_there_with_its_gain",),
        "compared_groups": ("two_values_of_a_setting_are_compared_in_python",),
    },
    "6: groups in some cells": {
        "compared_groups": ("only_what_differs_between_cells_is_shown", "each_broken_cell_is_another_one"),
    },
    "7: names of options in the cache": {"newcomer_findings": ("runs_are_found_by_the_option_that_was_chosen",)},
    "8: 80 columns": {
        "terminal": ("no_number_and_no_word_is_broken",),
        "compared_groups": ("the_table_is_readable_in_80_columns",),
    },
    "9: headlines": {
        "newcomer_findings": (
            *("what_is_above_and_below_zero_is_compared_in_its_own_unit", "where_nothing_was_lost_that_is_said"),
            "what_is_not_known_is_not_as_good",
        ),
    },
    "10: SGLang on an H100": {"composed": ("what_was_measured_is_offered_and_within_the_peaks",)},
    "11: splits and losses": {
        "plan_beside": ("attainment_after_a_loss_is_of_its_minute",),
        "slow/guides": ("every_command_of_a_guide_works_in_its_order",),
    },
    "12: promises in tables": {"newcomer_findings": ("a_promise_and_what_is_asked_for_come_first",)},
    "13: files of Excel and Windows": {
        "inputs": ("a_log_is_read_under_the_names_and_in_the_shape_that_it_has",),
        "bad_traces": ("what_is_wrong_is_named_in_one_line",),
    },
    "14: Dask without a worker": {"newcomer_findings": ("who_waits_for_a_worker_says_so",)},
    "15: figures": {
        "plan_beside": ("ticks_are_numbers_that_were_tried_with_room_between_them",),
        "tuned": (
            *("many_lines_are_dots_with_intervals_in_order_and_own_ones_are_marked",),
            "the_setting_is_drawn_along_x_with_a_line_for_each_rate",
        ),
    },
    "16: the dark": {"newcomer_findings": ("tooltips_have_the_colours_of_the_page",)},
    "17: names of pages": {"newcomer_findings": ("a_page_has_the_name_that_was_given",)},
    "18: how long a recording lasts": {
        "recorded_plan": ("what_a_recording_has_not_is_said",),
        "newcomer_findings": ("no_page_offers_a_mean_over_whatever_ran",),
    },
    "19: small": {
        "newcomer_findings": (
            *("a_message_says_what_was_typed_and_the_way_out", "a_near_miss_is_told_the_way"),
            "a_drawing_has_the_width_of_a_column",
        ),
    },
}
"""of each finding, by the names of files, the tests that show it"""


def test_each_finding_has_tests() -> None:
    assert [int(one.partition(":")[0]) for one in SHOWN] == list(range(1, 20))
    for tests in SHOWN.values():
        assert any(tests.values())
        for file, names in tests.items():
            folder, _, name = file.rpartition("/")
            text = (ROOT / "tests" / (folder or "fast") / f"test_{name}.py").read_text(encoding="utf-8")
            assert [one for one in names if f"def test_{one}(" not in text] == []


# ---------------------------------------------------------------- 18: questions to all that ever ran
def test_no_page_offers_a_mean_over_whatever_ran() -> None:
    """Plans, losses and splits are in `runs`, too: a mean of them all says nothing. docs/tables.md says so itself."""
    pages = [ROOT / "README.md", *(one for one in (ROOT / "docs").glob("*.md") if one.name != "tables.md")]
    mixed = re.compile(r"select[^\"`]*avg\([^\"`]*from runs (?:group|order)")
    assert [one.name for one in pages if mixed.search(one.read_text(encoding="utf-8"))] == []


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


# ---------------------------------------------------------------- 7: the cache knows options by their names
@pytest.mark.slow
def test_runs_are_found_by_the_option_that_was_chosen(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "conf" / "policy").mkdir(parents=True)
    (here / "gateway_rule.py").write_text(OWN)
    (here / "conf" / "policy" / "mine.yaml").write_text("_target_: gateway_rule.Mix\nweight: 1.0\n")
    names = "mine,llmd,sglang_cache_aware,vllm_cache_aware"
    assert main(["-m", f"policy={names}", *TINY, "sweep.name=first"]) == 0
    assert main(["-m", "policy=mine", *TINY, "seed=1", "sweep.name=second"]) == 0
    capsys.readouterr()
    assert main(["cache", "ls", "output=json"]) == 0
    assert {row["policy"] for row in json.loads(capsys.readouterr().out)} == set(names.split(","))
    for what, many in (("policy=mine", 2), ("sweep=first", 4), ("policy=sglang_cache_aware", 1), ("sweep=second", 1)):
        assert main(["cache", "export", "it.tar", what]) == 0
        assert capsys.readouterr().err.startswith(f"{many} run")
        Path("it.tar").unlink()
    assert main(["cache", "export", "it.tar", "policy=cache_aware"]) == 2
    said = capsys.readouterr().err
    assert "unknown policy of a run: 'cache_aware'" in said
    assert "sglang_cache_aware" in said
    assert main(["cache", "export", "it.tar", "sweep=third"]) == 2
    assert "unknown sweep 'third'; valid: first, second" in capsys.readouterr().err


# ---------------------------------------------------------------- 9: headlines
def rows_of(values: Mapping[str, Sequence[float]], metric: str) -> list[Row]:
    """Of each router its values at 8 and 16 requests/s, of three seeds that hardly differ."""
    return [
        {"policy": name, "rps": rate, "gpus": 2, "seed": seed, metric: value + 1e-4 * seed, "n_finished": 1}
        for name, of in values.items()
        for rate, value in zip((8.0, 16.0), of, strict=True)
        for seed in range(3)
    ]


def test_what_is_above_and_below_zero_is_compared_in_its_own_unit() -> None:
    name = next(one for one in METRICS if "margin" in one)
    rows = rows_of({"lor": (0.039, -0.12), "vllm_cache_aware": (0.026, -0.004)}, name)
    said = figure(name, rows, ("policy", "rps")).headline
    assert "%" not in said
    assert said.startswith("vllm_cache_aware's ")
    assert "higher than lor's" in said
    assert "−0.013 to 0.12 higher" in said.replace("0.116", "0.12")


def test_where_nothing_was_lost_that_is_said() -> None:
    rows = [row | {"n_lost": 0} for row in rows_of({"lor": (1, 1), "e2": (1, 1)}, "n_requests")]
    said = figure("n_lost", rows, ("policy", "rps")).headline
    assert said.startswith("lor and e2 are equal: ")
    assert "is 0 everywhere" in said


def test_what_is_not_known_is_not_as_good() -> None:
    def point(changes: Sequence[float]) -> Point:
        rows = tuple({"seed": seed, "regret": change} for seed, change in enumerate(changes))
        return Point({"load": "all"}, rows, "regret")

    assert quality._word(point([-20.0, 20.0, 1.0])) == "undecided"
    assert quality._word(point([0.1, -0.1, 0.0])) == "as good"
    assert quality._cell([point([-20.0, 20.0, 1.0])]).tone is Tone.NONE


# ---------------------------------------------------------------- 12: what was promised is in the table
def test_a_promise_and_what_is_asked_for_come_first(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("slo.ttft_s=1", "slo.target=0.95", "report.metrics=[ttft_p99_s,tpot_p99_s]")
    assert main(["-m", "policy=lor,random", *TINY[:-1], *asked]) == 0
    head = capsys.readouterr().out.splitlines()[0].split()
    assert head[:3] == ["policy", "tpot_p99_s", "slo_attainment"]
    assert main(["-m", "policy=lor,random", *TINY]) == 0
    assert "slo_attainment" not in capsys.readouterr().out


# ---------------------------------------------------------------- 14: Dask without a worker
class _Client:
    """Of a scheduler that has no worker, until somebody waits for one."""

    def scheduler_info(self) -> dict[str, object]:
        return {"workers": {}, "address": "tcp://127.0.0.1:8786"}

    def wait_for_workers(self, count: int, timeout: float) -> None:
        raise TimeoutError

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_who_waits_for_a_worker_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    backend = backends.Cluster()
    monkeypatch.setattr(backends.Cluster, "client", lambda self, workers: _Client())
    with pytest.raises(TimeoutError), backend.engaged([], 1):
        pass
    assert capsys.readouterr().err == "prebleexp: no worker yet at tcp://127.0.0.1:8786: waiting for one\n"


# ---------------------------------------------------------------- 16: tooltips in the dark
def test_tooltips_have_the_colours_of_the_page() -> None:
    style = (ROOT / "prebleexp" / "report" / "templates" / "style.css").read_text()
    found = re.search(r"#vg-tooltip-element \{([^}]*)\}", style)
    assert found is not None
    assert "background: var(--paper)" in found[1]
    assert "color: var(--ink)" in found[1]


# ---------------------------------------------------------------- 19: messages
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("policy=loor", "unknown policy 'loor'. Did you mean 'lor'? Valid: aibrix_least_kv_cache, "),
        ("policy=löwe", "policy=löwe is not valid: ö must stand in quotes within its value"),
        ("workload.path=~/log.jsonl", "workload.path=~/log.jsonl is not valid: ~ stands for nothing here: write $HOME"),
        ("hardware=h100", "unknown hardware 'h100'; it is a GPU: say hardware/gpu=h100"),
        ("hardware=llama_3_1_8b", "unknown hardware 'llama_3_1_8b'; it is a model: say hardware/model=llama_3_1_8b"),
    ],
)
def test_a_message_says_what_was_typed_and_the_way_out(
    here: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([line]) == 2
    assert capsys.readouterr().err.startswith(f"prebleexp: {said}")


def test_a_drawing_has_the_width_of_a_column(tmp_path: Path) -> None:
    picture = Picture(figure("ttft_p99_s", rows_of({"lor": (1, 2), "e2": (1, 1.5)}, "ttft_p99_s"), ("policy", "rps")))
    text = picture.save(tmp_path / "it.svg", width=3.3).read_text()
    size = re.search(r'width="([\d.]+)" height="([\d.]+)" viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    assert size is not None
    width, height, wide, high = map(float, size.groups())
    assert width == pytest.approx(3.3 * 72)
    assert height / width == pytest.approx(high / wide, rel=1e-4)
    assert picture.save(tmp_path / "it.pdf", width=3.3).read_bytes()[:4] == b"%PDF"
    with pytest.raises(InvalidInput, match="width=-1 is not valid"):
        picture.save(tmp_path / "it.pdf", width=-1)


# ---------------------------------------------------------------- a key without its group, a percentile as a key
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("gpu=h100", "unknown key 'gpu'; say hardware/gpu=h100"),
        ("precision=fp8", "unknown key 'precision'; say hardware.precision=fp8"),
        ("slo.ttft_p95=2", "a percentile is a share of a limit: 'slo.ttft_s={p95: 1}'"),
        ("slo.p99_tpot_s=2", "a percentile is a share of a limit: 'slo.tpot_s={p99: 1}'"),
        ("policy.weight=2", "Mix has this field, and its YAML does not list it: write 'weight: 1.0' into conf/policy/"),
    ],
)
def test_a_near_miss_is_told_the_way(here: Path, capsys: pytest.CaptureFixture[str], line: str, said: str) -> None:
    (here / "conf" / "policy").mkdir(parents=True)
    (here / "gateway_rule.py").write_text(OWN)
    (here / "conf" / "policy" / "mine.yaml").write_text("_target_: gateway_rule.Mix\n")
    assert main(["policy=mine", line]) == 2
    assert said in capsys.readouterr().err


def test_a_page_has_the_name_that_was_given() -> None:
    assert page("plan", ["gpus=2", "sweep.name=mine"]) == "mine"
    assert page("plan", ["gpus=2", "policy=lor"]) == "plan-gpus-2-policy-lor"


# ---------------------------------------------------------------- a measured model that is not the simulated one
@pytest.mark.parametrize(
    ("measured", "simulated", "said"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b", ""),
        ("meta-llama/Llama-2-70b-chat-hf", "llama2-70b", ""),
        (None, "llama2-70b", ""),
        ("meta-llama/Llama-3.1-70B-Instruct", "gpt-oss-120b", "two models are compared; say hardware/model=llama_3_1"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.1-70b", ""),
        ("deepseek-ai/DeepSeek-V3-Base", "llama-3.1-70b", "two models are compared; say hardware/model=deepseek_r1"),
        ("mine", "gpt-oss-120b", "the file is of mine, and gpt-oss-120b is simulated: numbers of two models"),
    ],
)
def test_another_model_than_was_measured_is_said(measured: str | None, simulated: str, said: str) -> None:
    found = another_model({"model_id": measured}, simulated)
    assert bool(found) == bool(said)
    assert all(said in one for one in found)


# ---------------------------------------------------------------- a model that is not there
@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("llama_3_3_70b", "llama_3_1_70b"),
        ("Llama-3.3-70B-Instruct", "llama_3_1_70b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama_3_1_8b"),
        ("deepseek_v3", "deepseek_r1"),
        ("deepseek_v3_2", None),  # its attention is another
        ("llama_3_1_405b", None),
        ("mine", None),
    ],
)
def test_a_model_of_the_same_shape_is_named(name: str, alike: str | None) -> None:
    assert same_shape.of_shape(name) == alike


def test_models_that_others_are_like_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    """ "Did you mean 'llama_3_1_70b'?" left open whether one may take it for Llama 3.3."""
    options = set(places.options("hardware/model"))
    assert same_shape.SAME.keys() <= options
    assert not options & {other for others in same_shape.SAME.values() for other in others}
    for words in (["hardware", "model=llama_3_3_70b"], ["gpus=1", "hardware/model=llama_3_3_70b"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "steps take as long and as much KV fits: say hardware/model=llama_3_1_70b" in said


@pytest.mark.parametrize("width", [80, 200])
def test_the_table_of_hardware_fits_its_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had lines of 250 characters, in order of errors: nobody found his GPU."""
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["hardware"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    start = next(i for i, line in enumerate(lines) if line.startswith("how well combinations")) + 2
    gpus = [line.split()[0] for line in lines[start : lines.index("", start)] if line[:1] != "…"]
    assert len(gpus) > 20
    assert gpus == sorted(gpus, key=lambda one: (one == "any", one))
