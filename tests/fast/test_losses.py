"""Whoever was not served is spoken of: in the terminal, in tables, on pages, and in the exit of compare."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import prebleexp
from prebleexp import losses, offered, overload, unfound
from prebleexp.__main__ import main
from prebleexp.commands.compare import _broken, _losses
from prebleexp.comparison import Measured, Verdict, compare
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.launch.planner import Planner
from prebleexp.losses import as_text, lost, sentences, unserved
from prebleexp.metrics import measure
from prebleexp.policies.base import HOLD, REFUSE, Policy
from prebleexp.regression import limit_of
from prebleexp.report.figures import figure
from prebleexp.sim.types import OF_REQUESTS, Outcome, State, Workload
from tests.support.pages.parsed import Page
from tests.support.pages.sweep_page import FIGURE, html
from tests.support.pages.sweep_rows import SWEEP, rows

Command = Callable[..., tuple[int, str, str]]
REFUSED = "refused (prompts or answers that no GPU can hold, or the gateway or router would not take them)"
LENGTHS = (150_000, 600, 700, 140_000, 800)
"""of prompts; the context of the default hardware is 131,072 tokens"""


@dataclass(frozen=True)
class Picky(Policy):
    """Does not take prompts that are too long for it."""

    most: int = 650
    answer: int = REFUSE

    def route(self, mine: Any, view: Any, request: int, now: float) -> int:
        return self.answer if view.requests[request].prompt_tokens > self.most else 0


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command line in a folder with a recorded workload and two policies that lose requests."""
    lines, ids = [], 0
    for i, tokens in enumerate(LENGTHS):
        blocks = -(-tokens // 512)
        line = {"timestamp": 100 * i, "input_length": tokens, "output_length": 3}
        lines.append(json.dumps(line | {"hash_ids": [*range(ids, ids + blocks)]}))
        ids += blocks
    (tmp_path / "trace.jsonl").write_text("\n".join(lines))
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    for name, answer in (("picky", REFUSE), ("idle", HOLD)):
        yaml = f"_target_: tests.fast.test_losses.Picky\nmost: 650\nanswer: {answer}\n"
        (tmp_path / "conf" / "policy" / f"{name}.yaml").write_text(yaml)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main([*arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def said(err: str) -> list[str]:
    """What standard error has of requests, but for what the file was taken for."""
    return [line for line in err.splitlines() if " requests " in f" {line}" and "trace.jsonl: " not in line]


MOONCAKE = ("workload=mooncake", "workload.path=trace.jsonl", "workload.load=recorded", "gpus=2", "duration_s=5")


def test_a_run_says_who_was_refused(command: Command) -> None:
    code, out, err = command(*MOONCAKE)
    assert code == 0
    assert {"n_requests 5", "n_finished 3", "n_refused 2"} <= {" ".join(line.split()[:2]) for line in out.splitlines()}
    assert said(err) == [f"prebleexp: 2 of 5 requests were {REFUSED}; means leave them out"]


def test_a_run_in_which_everybody_is_served_says_nothing(command: Command) -> None:
    code, _, err = command("gpus=2", "rps=4", "duration_s=5")
    assert (code, said(err)) == (0, [])


def test_requests_whose_kv_did_not_arrive_are_spoken_of() -> None:
    row = {"n_requests": 5, "n_failed": 2}
    said = "2 of 5 requests were failed by their GPU, since their KV did not arrive"
    assert sentences([("", [row])]) == [f"{said}; means have them as of their last report, or leave them out"]
    assert (lost([row]), unserved([row])["refused"]) == (2, 2)


@pytest.mark.slow
def test_a_sweep_says_in_how_many_cells_and_where_most(command: Command) -> None:
    _, out, err = command("-m", *MOONCAKE[:3], "gpus=2", "duration_s=5", "policy=lor,picky", "report=none")
    head, *lines = out.splitlines()
    assert head.split()[-2:] == ["finished", "refused"]
    assert [line.split()[-2:] for line in lines] == [["3/5", "2"], ["1/5", "4"]]
    assert said(err) == [
        f"prebleexp: requests were {REFUSED} in 2 of 2 cells, at worst 4 of 5 (policy=picky); means leave them out"
    ]


def test_what_a_router_holds_for_ever_is_said(command: Command) -> None:
    refused, held = said(command(*MOONCAKE, "policy=idle")[2])
    assert refused.startswith("prebleexp: 2 of 5 requests were refused")
    assert held == "prebleexp: 2 of 5 requests were held at the router to the end; means leave them out"


def test_where_a_run_stops_unfinished_requests_are_one_line(command: Command) -> None:
    sweep = ["-m", "gpus=1,2", "rps=20,40", "duration_s=5", "horizon=stop", "report=none"]
    code, out, err = command(*sweep)
    assert code == 0
    assert out.splitlines()[0].split()[-2:] == ["finished", "unfinished"]
    for line in out.splitlines()[1:]:
        finished, requests = map(int, line.split()[-2].split("/"))
        assert int(line.split()[-1]) == requests - finished > 0
    beyond, line = said(err)
    assert beyond.startswith("prebleexp: beyond what was measured: ")
    assert line.startswith("prebleexp: requests were unfinished at the end of 5 s in 4 of 4 cells, at worst ")
    assert line.endswith("(gpus=1 rps=40); means have them as of their last report, or leave them out")


@pytest.mark.slow
def test_the_page_of_a_sweep_says_it_in_the_section_and_in_its_facts(command: Command, tmp_path: Path) -> None:
    command("-m", *MOONCAKE[:3], "gpus=2", "duration_s=5", "policy=lor,picky")
    shown = Page((tmp_path / "reports" / "sweep" / "index.html").read_text()).text
    assert f"Requests were {REFUSED} in 2 of 2 cells, at worst 4 of 5 (picky, 2 GPUs" in shown
    assert "requests refused6" in shown


@pytest.mark.slow
def test_only_the_figures_that_leave_requests_out_speak_of_it() -> None:
    whole = [row | {"n_finished": row["n_requests"]} for row in rows(seeds=2)]
    assert figure(FIGURE, whole, SWEEP.axes).losses == ""
    assert "Requests were" not in html(whole)
    some = [row | {"n_refused": 30 * (row["policy"] == "random" and row["rps"] == 2.0)} for row in whole]
    says = figure(FIGURE, some, SWEEP.axes).losses
    assert says.startswith(
        f"Requests were {REFUSED} in 4 of 96 cells, at worst 60 of 120 (random, 1 GPU, 2 requests/s);"
    )


@pytest.mark.slow
def test_the_page_of_a_run_says_it(command: Command, tmp_path: Path) -> None:
    assert command("trace", *MOONCAKE)[0] == 0
    page = next((tmp_path / "reports").glob("trace-*/index.html")).read_text()
    assert f"2 of 5 requests were {REFUSED}; means leave them out." in Page(page).text
    assert command("trace", "gpus=1", "rps=100", "duration_s=5", "horizon=stop", "reports_dir=stopped")[0] == 0
    page = next((tmp_path / "stopped").glob("trace-*/index.html")).read_text()
    assert "requests were unfinished at the end of 5 s; means" in Page(page).text


@pytest.mark.slow
def test_compare_says_which_side_lost_requests(command: Command, tmp_path: Path) -> None:
    command("-m", *MOONCAKE[:3], "gpus=2", "duration_s=5", "policy=lor,picky", "report=none")
    code, out, err = command("compare", "lor", "picky")
    assert code == 0
    head, line = out.splitlines()
    assert head.split()[-7:] == ["finished", "of", "A", "of", "B", "B", "is"]
    assert line.split()[-5:] == ["60.0", "%", "20.0", "%", "unproven"]
    assert f"prebleexp: A: 2 of 5 requests were {REFUSED}; means leave them out" in err
    assert f"prebleexp: B: 4 of 5 requests were {REFUSED}; means leave them out" in err
    shown = Page((tmp_path / "reports" / "compare-lor-picky" / "index.html").read_text()).text
    assert f"B: 4 of 5 requests were {REFUSED}; means leave them out." in shown
    (cell,) = json.loads(command("compare", "lor", "picky", "output=json", "report=none")[1])["cells"]
    assert (cell["finished_a"], cell["finished_b"]) == (0.6, 0.2)


@pytest.mark.slow
def test_a_limit_does_not_pass_a_policy_that_loses_requests(command: Command) -> None:
    command("-m", *MOONCAKE[:3], "gpus=2", "duration_s=5", "policy=lor,picky", "report=none")
    code, _, err = command("compare", "lor", "picky", "fail_if=p99_ttft:+500%", "report=none")
    assert code == 1
    assert "fail_if=p99_ttft:+500%: B does not serve 4 requests, A 2, at the only configuration" in err
    assert "passed" not in err
    assert command("compare", "picky", "lor", "fail_if=p99_ttft:+500%", "report=none")[0] == 0
    assert command("compare", "lor", "picky", "fail_if=n_finished:-80%", "report=none")[0] == 0, "that is counted"


def measured(values: dict[int, float], **counts: int | str) -> list[Measured]:
    metrics = {"n_requests": 10, "n_finished": 10, **{name: one for name, one in counts.items() if name[:2] == "n_"}}
    place = {name: one for name, one in counts.items() if name[:2] != "n_"}
    return [Measured(place, seed, {"ttft_p99_s": one, **metrics}, "") for seed, one in values.items()]


def test_what_looks_better_since_it_lost_requests_is_incomparable() -> None:
    slow, fast = {0: 10.0, 1: 20.0, 2: 30.0}, {0: 9.0, 1: 19.1, 2: 28.9}
    lossy = {"n_finished": 8, "n_refused": 2}

    def verdict(a: list[Measured], b: list[Measured], metric: str = "ttft_p99_s") -> Verdict:
        return compare(a, b, metric).cells[0].verdict

    assert verdict(measured(slow), measured(fast)) is Verdict.BETTER
    assert verdict(measured(slow), measured(fast, **lossy)) is Verdict.INCOMPARABLE
    assert verdict(measured(fast, **lossy), measured(slow)) is Verdict.INCOMPARABLE, "the sides turned around"
    assert verdict(measured(slow, **lossy), measured(fast)) is Verdict.BETTER, "in spite of it"
    assert verdict(measured(slow, **lossy), measured(fast, **lossy)) is Verdict.BETTER
    stopped = {"horizon": "stop", "duration_s": 5, "n_finished": 8, "n_running": 2}
    assert verdict(measured(slow, **stopped), measured(fast, **stopped | {"n_running": 3})) is Verdict.BETTER
    (cell,) = compare(measured(slow), measured(fast, **lossy), "ttft_p99_s").cells
    assert cell.finished == [1, 0.8]
    assert limit_of("p99_ttft:+5%").evaded_by(cell)
    assert not limit_of("n_finished:-30%").evaded_by(cell)


def test_of_what_is_neither_better_nor_worse_more_is_different() -> None:
    a, b = ([Measured({}, seed, {"peak_kv_tokens": n + seed / 9}, "") for seed in range(4)] for n in (100, 200))
    b[3] = Measured({}, 3, {"peak_kv_tokens": 199}, "")
    assert compare(a, b, "peak_kv_tokens").cells[0].verdict is Verdict.DIFFERENT
    for text in ("peak_kv_tokens:+5%", "peak_kv_tokens:-5%"):
        assert limit_of(text).metric == "peak_kv_tokens"


def test_a_cell_in_which_a_side_has_no_value_is_counted() -> None:
    a = [Measured({"gpus": gpus}, 0, {"ttft_p99_s": 1.0}, "") for gpus in (1, 2)]
    b = [Measured({"gpus": gpus}, 0, {"ttft_p99_s": 1.0 if gpus == 1 else None}, "") for gpus in (1, 2, 4)]
    found = compare(a, b, "ttft_p99_s")
    assert (len(found.cells), found.silent, found.left_out) == (1, (0, 1), 1)
    nothing = [Measured({"gpus": 1}, 0, {"ttft_p99_s": None, "n_requests": 5, "n_refused": 5}, "")]
    with pytest.raises(
        InvalidInput, match=r"no seed in common for which both have ttft_p99_s; B: 5 of 5 requests were"
    ):
        compare(a, nothing, "ttft_p99_s")
    limit = limit_of("p99_ttft:+5%")
    assert _broken(found, limit) == ["B has no ttft_p99_s in 1 cell, A in 0"]
    assert _broken(compare(b, a, "ttft_p99_s"), limit) == []


def test_every_way_of_not_being_served_has_a_sentence() -> None:
    row = {"n_requests": 2000, "n_finished": 990, "n_refused": 1000, "n_unrouted": 1, "n_queued": 2, "n_running": 7}
    assert unserved([row, row]) == {"refused": 2000, "unfinished": 20}
    assert lost([row]) == 1010
    assert lost([row | {"horizon": "stop"}]) == 1000
    says = sentences([("", [row])])
    assert [one.partition(" requests ")[0] for one in says] == [f"{n} of 2,000" for n in ("1,000", "1", "2", "7")]
    assert says[1].startswith("1 of 2,000 requests was held at the router")
    assert as_text(["1 of 2", "requests were"]) == "1 of 2. Requests were."
    (refused, stopped) = sentences([("a", [row | {"horizon": "stop", "duration_s": d} for d in (5, 6)]), ("b", [])])
    assert "in 1 of 2 cells, at worst 2,000 of 4,000 (a)" in refused
    assert stopped.startswith("requests were unfinished at the end of their runs in 1 of 2 cells, at worst 20 of 4,000")
    row = {"n_requests": 100, "n_finished": 60, "n_refused": 1, "n_cancelled": 9, "n_not_due": 30}
    assert unserved([row]) == {"refused": 10, "unfinished": 30}
    assert lost([row]) == 10
    _, cancelled, never = sentences([("", [row])])
    assert cancelled.startswith("9 of 100 requests were cancelled (they gave up, or come after others")
    assert never.startswith("30 of 100 requests were never due (of sessions that begin after duration_s, or after")
    later = sentences([("", [row | {"horizon": "stop", "duration_s": 5}])])[-1]
    assert later == "30 of 100 requests were not due by the end of 5 s; means leave them out"


def test_kept_requests_have_what_was_declared() -> None:
    found = prebleexp.run(gpus=2, rps=4, duration_s=5, cache_dir=None).requests
    assert [*found.columns][:19] == [
        *("arrival_s", "prompt_tokens", "output_tokens", "max_new_tokens", "prefix_group"),
        *(
            "session",
            "turn",
            "priority",
            "slo_ttft_s",
            "slo_tpot_s",
            "after_ends",
            "delay_s",
            "parent_session",
            "patience_s",
        ),
        *("client", "adapter", "goes_on", "stage", "overlaps"),
    ]
    assert [*found.columns][19:] == [
        *("gpu", "decode_gpu", "state", "due_s", "told_output", "overhead_s", "router_wait_s", "ttft_s"),
        *(
            "latency_s",
            "finish_s",
            "output_seen",
            "hit_tokens",
            "gap_p99_s",
            "gap_top10_s",
            "prefilled_tokens",
            "prefill_end_s",
            "transferred_tokens",
            "host_tokens",
            "disk_tokens",
            "shared_tokens",
            "peer_tokens",
            "moves",
            "moves_aborted",
            "stopped_s",
            "losses",
            "refused_by",
            "retries",
            "tpot_s",
            "norm_latency_s",
        ),
    ]
    assert set(found.session) == {-1}
    assert (found.due_s == found.arrival_s).all()
    assert found.slo_ttft_s.isna().all()


# ---------------------------------------------------------------- overload
def stream(rate: float, seconds: float) -> Workload:
    """Requests of two tokens each, evenly spaced."""
    arrivals = np.arange(round(rate * seconds)) / rate
    n = len(arrivals)
    ones = np.ones(n, np.int32)
    return Workload(arrivals, ones, 2 * ones, 2 * ones, ones, np.arange(n + 1), np.arange(n), ones)


def growth(workload: Workload, finish_s: np.ndarray[Any, Any]) -> float | None:
    """Of a run in which requests finished then, and each took a second at least."""
    n = len(workload)
    latency = finish_s - workload.arrival_s
    nothing = {name: np.zeros(n) for name in OF_REQUESTS} | {
        one.name: np.zeros(1) for one in fields(Outcome) if one.name.startswith("gpu_")
    }
    nothing["due_s"] = workload.arrival_s
    made = nothing | {"state": np.full(n, State.FINISHED), "ttft_s": latency - 0.5, "latency_s": latency}
    row = measure(workload, Outcome(**made | {"finish_s": finish_s, "output_seen": np.full(n, 2), "end_s": 99.0}))
    return row["unfinished_growth"]


def test_what_the_cluster_cannot_keep_up_with_is_a_share_of_the_arrivals() -> None:
    """By hand: of 10 a second, 6 are finished, so 4 of 10 stay."""
    workload = stream(10, 40)
    assert growth(workload, np.arange(400) / 6 + 1) == pytest.approx(0.4, abs=0.02)
    assert growth(workload, workload.arrival_s + 3) == pytest.approx(0, abs=0.02), "a second or ten, it keeps up"
    late = np.where(workload.arrival_s > 30, 60.0, workload.arrival_s + 3)
    assert growth(workload, late) == pytest.approx(0, abs=0.02), "a burst at the end is none"
    short = stream(10, 1.5)
    assert growth(short, short.arrival_s + 1) is None, "all is still in its first second: nobody can tell"


@pytest.mark.parametrize(
    ("growths", "requests", "much"),
    [
        ([0.4, 0.2], 1000, 0.3),
        ([0.09], 100_000, 0),
        ([0.3], 100, 0),  # 15 of 50, within three times the square root of 50
        ([0.3], 400, 0.3),
        ([None, None], 1000, 0),
        ([], 1000, 0),
    ],
)
def test_overload_must_be_more_than_chance(growths: list[float | None], requests: int, much: float) -> None:
    rows = [{"unfinished_growth": one, "n_requests": requests} for one in growths]
    assert overload.share(rows) == pytest.approx(much)
    said = losses.sentences([("rps=1", [{"n_requests": 5}]), ("rps=9", rows)])
    assert len(said) == (much > 0)
    if much:
        assert "in 1 of 2 cells, at worst by 30% of the arrivals (rps=9): overloaded" in said[0]


@pytest.mark.slow
def test_an_overloaded_run_says_so_on_terminal_and_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    served = ["hardware=a6000_mistral_7b", "engine=sglang_2024"]
    line = ["gpus=1", "duration_s=60", *served, "output_length=constant", "output_length.lengths=[20]"]
    assert main([*line, "rps=100"]) == 0
    assert "overloaded, so latencies grow with duration_s" in capsys.readouterr().err
    assert main(["-m", *line, "rps=4,100"]) == 0
    said = next(one for one in capsys.readouterr().err.splitlines() if "overloaded" in one)
    assert "in 1 of 2 cells" in said
    assert "(rps=100)" in said
    assert "overloaded" in (tmp_path / "reports" / "sweep" / "index.html").read_text()
    assert main([*line, "rps=4"]) == 0
    assert main([*line[:1], "rps=200", "duration_s=0.5"]) == 0, "a short burst"
    assert "overloaded" not in capsys.readouterr().err


def test_routers_that_had_nothing_to_find_are_spoken_of_on_pages_and_by_compare() -> None:
    every = rows((2,), (8.0, 16.0), seeds=1)
    assert len({row["policy"] for row in every}) > 1
    assert not unfound.sentences(every)
    none = [row | {"hit_ratio": 0.0} for row in every]
    (said,) = unfound.sentences(none)
    assert said.startswith("no run found a prompt's token in a prefix cache")
    assert said[1:] in figure(FIGURE, none, SWEEP.axes).losses
    assert not unfound.sentences([row for row in none if row["policy"] == none[0]["policy"]])
    a, b = ([Measured({"policy": name}, 0, {"hit_ratio": 0.0, "ttft_mean_s": 1.0}, "") for _ in "1"] for name in "ab")
    assert said in _losses(compare(a, b, "ttft_mean_s"))


# ---------------------------------------------------------------- another rate than was asked for
def test_sessions_whose_turns_come_after_duration_s_are_said_to_come_more_slowly() -> None:
    """A reader of "at 160 requests/s" would take what 19 a second found for it."""
    run = runs.run(configure.cells(["workload=chats", "rps=40", "duration_s=20", "gpus=4", "policy=lor"])[0])
    row = {**run.metrics, "rps": 40.0, "duration_s": 20.0, "horizon": "drain"}
    (said,) = sentences([("", [row])])
    came = run.metrics["n_requests"] / run.metrics["offered_s"]
    assert came < 20
    assert said.startswith(f"requests came more slowly than rps says: {came:.3g}/s on average over")
    assert "rps=40 and duration_s=20; sessions start within duration_s" in said
    (more,) = sentences([("rps=40", [row]), ("rps=2", [row | {"rps": 2.0}]), ("rps=80", [row | {"rps": 80.0}])])
    assert more.startswith("in 2 of 3 cells requests came more slowly than rps says, at worst (rps=80)")
    assert offered.rate([row | {"users": 8}]) is None
    assert offered.rate([row | {"duration_s": row["offered_s"]}]) is None
    plain = runs.run(configure.cells(["rps=40", "duration_s=2", "gpus=4", "policy=lor"])[0])
    assert offered.rate([{**plain.metrics, "rps": 40.0, "duration_s": 2.0}]) is None


def test_of_users_who_are_the_load_the_turns_that_never_came_are_not_counted_as_unserved() -> None:
    place = {"workload.load": "population", "policy": "lor"}
    seen = {"n_requests": 100, "n_not_due": 48, "n_finished": 50, "ttft_p99_s": 1.0}
    rows = [Measured({**place, "policy": name}, 0, seen, "") for name in ("lor", "e2")]
    (cell,) = compare(rows[:1], rows[1:], "ttft_p99_s").cells
    assert cell.finished == [50 / 52, 50 / 52]


def test_a_plan_says_whose_gpus_cannot_hold_all_requests() -> None:
    """Its page had a bare number of refused requests, of all contenders together."""
    runs_of = {
        name: [SimpleNamespace(metrics={"n_requests": 20, "n_refused": n})] for name, n in (("TP1", 3), ("TP2", 0))
    }
    found = [SimpleNamespace(name=name) for name in runs_of]
    made = SimpleNamespace(misfits=[], _failed={}, found=found, _of={**runs_of, "beside": []}, _idle_settings=[])
    said = Planner.left_out.fget(made)  # type: ignore[attr-defined]
    assert said == [f"requests were {REFUSED} in 1 of 2 cells, at worst 3 of 20 (TP1); {losses.LEFT_OUT}"]
