"""`prebleexp live`: what is sent, what is written down of answers, and what is said of a measurement."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.commands import live as command
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import runs
from prebleexp.launch.configure import job
from prebleexp.live.http import loops
from prebleexp.live.http.places import origin
from prebleexp.live.measuring import compared, kept, measured, page, phases, sending
from prebleexp.live.measuring.lateness import lateness
from prebleexp.live.measuring.measured import late_mock
from prebleexp.live.measuring.outcome import outcome, unknown
from prebleexp.live.measuring.prompts import LEAST_ID, Prompts
from prebleexp.live.measuring.sending import Came, How, send
from prebleexp.live.measuring.sent import Sent, Table, table
from prebleexp.live.measuring.server_view import View, between, parsed
from prebleexp.live.measuring.stream import Answer
from prebleexp.live.measuring.timers import Timers
from prebleexp.live.mock.late import Late
from prebleexp.live.mock.serving import BEYOND, LATE
from prebleexp.metrics import measure
from prebleexp.report import cumulative
from prebleexp.report.answer import Answer as Verdict
from prebleexp.report.figures import Table as Columns
from prebleexp.sim.types import State, Workload
from tests.support.openai_server import Answer as Answers
from tests.support.openai_server import Seen, serving
from tests.support.sampled import examples
from tests.support.sessions import after_those
from tests.support.strategies.conversations import workload_of, workloads


def sent(
    workload: Workload, answers: Answers = lambda number, body: "ok", stop_s: float = math.inf, **how: Any
) -> tuple[Table, Seen]:
    """To a server that answers so."""

    async def main() -> tuple[Table, Seen]:
        async with serving(answers) as seen:
            usual = {"model": "tiny", "prompt": "ids", "real_answers": True, "vocabulary": 1000}
            usual |= {"timeout_s": math.inf, "connections": 1}
            to = How(**{"origins": [origin("url", f"http://127.0.0.1:{seen.port}")]} | usual | how)
            return (await send(workload, 7, stop_s, math.inf, to)).sent, seen

    return loops.run(main())


def requests(n: int = 4, output: int = 3, **columns: Any) -> Workload:
    made = workload_of([[0, i + 1] for i in range(n)], [16, *[10] * n], [0.0] * n, [output] * n, [output] * n, [-1] * n)
    return made.changed(**columns)


# ---------------------------------------------------------------- when it is sent
def test_what_is_due_is_called_once_by_whoever_looks_first() -> None:
    """The thread of the timers waits for the interpreter while answers are read: who reads them looks, too."""

    async def main() -> list[str]:
        loop, called = asyncio.get_running_loop(), list[str]()
        timers = Timers(loop)
        timers.at(1e9, lambda: called.append("in years"))
        timers.at(2e9, lambda: called.append("later still"))
        for now in (1e9 - 1, 1e9, 1e9 + 1):
            timers.look(now)
            called.append("looked")
        over = asyncio.Event()
        timers.at(0.0, over.set)
        await over.wait()
        timers.close()
        timers.look(2e9)
        return called

    assert loops.run(main()) == ["looked", "in years", "looked", "looked", "later still"]


def test_bodies_are_made_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is due while bodies are made for later waits for few of them."""
    turns, planned_at, plan = 0, list[int](), sending._Run._plan

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(planned_at) < 20:
            asyncio.get_running_loop().call_soon(turn)

    def noted(run: sending._Run, due_s: float, request: int) -> None:
        if not planned_at:
            turn()
        planned_at.append(turns)
        plan(run, due_s, request)

    monkeypatch.setattr(sending, "SLICE_S", 0.0)
    monkeypatch.setattr(sending._Run, "_plan", noted)
    sent(requests(20))
    assert len(set(planned_at)) == 20


# ---------------------------------------------------------------- what is sent
@settings(max_examples=examples(40), deadline=None)
@given(workloads())
def test_prompts_share_the_tokens_of_their_equal_leading_segments(workload: Workload) -> None:
    prompts = Prompts(workload, 3, 50_000)
    ids = [prompts.ids(one) for one in range(len(workload))]
    assert [len(one) for one in ids] == workload.prompt_tokens.tolist()
    assert all(LEAST_ID <= one < 50_000 for prompt in ids for one in prompt)
    rows = [slice(*workload.segment_offsets[i : i + 2]) for i in range(len(workload))]
    for i in range(1, len(ids)):
        shared = 0
        pairs = (
            zip(workload.segment_ids[row], workload.segment_tokens[row], strict=True) for row in (rows[0], rows[i])
        )
        for one, other in zip(*pairs, strict=False):
            if one[0] != other[0]:
                break
            shared += min(int(one[1]), int(other[1]))
            if one[1] != other[1]:
                break
        assert ids[0][:shared] == ids[i][:shared]


def test_another_seed_sends_other_tokens() -> None:
    one, other = (Prompts(requests(), seed, 50_000).ids(0) for seed in (1, 2))
    assert sum(a == b for a, b in zip(one, other, strict=True)) < 3


@pytest.mark.parametrize("kind", ["ids", "text", "chat"])
def test_lengths_are_those_of_the_stream(kind: str) -> None:
    made, seen = sent(requests(), prompt=kind, real_answers=False)
    assert made.state.tolist() == [State.FINISHED] * 4
    assert made.prompt.tolist() == [26] * 4
    assert made.output.tolist() == [3] * 4
    assert made.chunks.tolist() == [3] * 4
    assert made.cached.tolist() == [16] * 4
    assert {body["max_tokens"] for body in seen.bodies} == {3}
    assert all(body["ignore_eos"] and body["min_tokens"] == 3 and body["model"] == "tiny" for body in seen.bodies)
    assert (made.sent_s >= made.due_s).all()
    assert (made.first_s > made.sent_s).all()
    assert (made.last_s > made.first_s).all()


def test_a_next_turn_has_the_answer_that_came_or_a_made_up_one() -> None:
    made = workload_of([[0], [0, 1, 2]], [16, 3, 5], [0.0, 0.0], [3, 2], [3, 2], [1, -1])
    made = made.changed(session=np.zeros(2, np.int32))
    turns = after_those(made, [[], [0]], delay_s=np.zeros(2))
    _, seen = sent(turns)
    assert seen.bodies[1]["prompt"][16:19] == [20, 21, 22], "what the server said"
    assert seen.bodies[1]["prompt"][:16] == seen.bodies[0]["prompt"]
    _, seen = sent(turns, real_answers=False)
    assert seen.bodies[1]["prompt"] == Prompts(turns, 7, 1000).ids(1)


# ---------------------------------------------------------------- what is written down
KINDS = {"ok": State.FINISHED, "busy": State.REFUSED, "broken": State.LOST, "cut": State.LOST, "empty": State.LOST}


def test_what_fails_is_never_dropped() -> None:
    names = list(KINDS)
    made, _ = sent(requests(5), lambda number, body: names[number])
    ways = dict(zip(names, range(5), strict=True))
    by_state = sorted(made.state.tolist())
    assert by_state == sorted(KINDS.values())
    assert sum(bool(one) for one in made.error) == 4
    assert any("status 429" in one for one in made.error)
    assert any("engine is dead" in one for one in made.error)
    assert any("closed the connection" in one for one in made.error)
    assert any("without a token" in one for one in made.error)
    assert ways["ok"] == 0


def test_a_key_that_a_server_repeats_is_not_kept() -> None:
    made, _ = sent(requests(2), lambda number, body: "says the key", key="sk-of-mine")
    assert len(made.error) == 2
    assert all("wrong: Bearer (the key)" in one and "sk-of-mine" not in one for one in made.error)


def test_nothing_is_left_of_a_request_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """But its row: no garbage is looked for while a stream is sent, however long that takes."""
    alive = weakref.WeakSet[Any]()
    most, made = 0, sending._Exchange.__init__

    def noted(exchange: Any, *of: Any) -> None:
        nonlocal most
        made(exchange, *of)
        alive.add(exchange)
        most = max(most, len(alive))

    monkeypatch.setattr(sending._Exchange, "__init__", noted)
    n = 40
    after = [[i - 1] if i else [] for i in range(n)]
    came, _ = sent(after_those(requests(n), after, delay_s=np.zeros(n), session=np.zeros(n, np.int32)))
    assert came.state.tolist() == [State.FINISHED] * n
    assert most <= 3


def test_those_behind_a_failure_never_come_unless_it_goes_on() -> None:
    made = requests(3).changed(session=np.zeros(3, np.int32))
    chain = after_those(made, [[], [0], [1]], delay_s=np.zeros(3))
    found, seen = sent(chain, lambda number, body: "broken")
    assert found.state.tolist() == [State.LOST, State.CANCELLED, State.CANCELLED]
    assert len(seen.bodies) == 1
    assert np.isnan(found.due_s[1:]).all()
    found, seen = sent(chain.changed(goes_on=np.ones(3, np.int32)), lambda number, body: "broken")
    assert found.state.tolist() == [State.LOST] * 3
    assert len(seen.bodies) == 3


def test_who_has_no_first_token_within_its_patience_closes_the_connection() -> None:
    made, seen = sent(requests(2).changed(patience_s=np.array([0.01, np.nan])), lambda number, body: "slow")
    assert made.state.tolist() == [State.CANCELLED, State.FINISHED]
    assert math.isnan(made.first_s[0])
    assert seen.left == 1


def test_a_request_that_takes_too_long_is_lost_and_said() -> None:
    made, _ = sent(requests(1), lambda number, body: "slow", timeout_s=0.01)
    assert made.state.tolist() == [State.LOST]
    assert made.error == ["not over after timeout_s=0.01"]


def test_a_run_that_stops_cuts_off_what_is_under_way() -> None:
    arrivals = np.array([0.0, 0.0, 0.0, 100.0])
    made, _ = sent(requests(output=2000).changed(arrival_s=arrivals), stop_s=0.3)
    assert made.state.tolist() == [State.RUNNING] * 3 + [State.NOT_DUE]


def test_who_stops_a_measurement_keeps_what_came() -> None:
    def answers(number: int, body: dict[str, Any]) -> str:
        if number == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return "ok" if number == 0 else "slow"

    arrivals = np.array([0.0, 0.3, 0.3, 100.0])

    async def main() -> Came:
        async with serving(answers) as seen:
            places = [origin("url", f"http://127.0.0.1:{seen.port}")]
            how = How(places, "tiny", "ids", False, 1000, math.inf, 1)
            return await send(requests().changed(arrival_s=arrivals), 0, math.inf, math.inf, how)

    came = loops.run(main())
    assert came.stopped
    assert came.sent.state[0] == State.FINISHED
    assert came.sent.state[3] == State.NOT_DUE
    assert State.FINISHED not in came.sent.state[1:]


def test_no_server_is_said() -> None:
    how = How([origin("url", "http://127.0.0.1:9")], "tiny", "ids", False, 1000, math.inf, 1)
    with pytest.raises(Exception, match=r"no connection to http://127\.0\.0\.1:9"):
        loops.run(send(requests(), 0, math.inf, math.inf, how))


# ---------------------------------------------------------------- streams
def event(text: str) -> bytes:
    return b"data: " + text.encode() + b"\n\n"


def test_the_first_token_is_the_first_that_says_something() -> None:
    answer = Answer()
    for at, one in enumerate(
        (
            '{"choices": [{"delta": {"role": "assistant", "content": ""}}]}',
            '{"choices": []}',
            '{"choices": [{"delta": {"reasoning_content": "hm"}}]}',
            '{"choices": [{"delta": {"tool_calls": [{"id": 1}]}, "finish_reason": "stop"}]}',
            '{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 9}}',
        )
    ):
        answer.feed(event(one), float(at))
    assert answer.times == [2.0, 3.0]
    assert answer.whole
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(1, 30), max_size=20), st.booleans())
def test_pieces_may_be_cut_anywhere(cuts: list[int], returns: bool) -> None:
    data = event('{"choices": [{"text": "ä", "token_ids": [5]}]}') * 3 + b": a remark\n\n" + event("[DONE]")
    data = data.replace(b"\n", b"\r\n") if returns else data
    answer, at = Answer(), 0
    for cut in [*cuts, len(data)]:
        answer.feed(data[at : at + cut], 1.0)
        at += cut
    assert answer.ids == [5, 5, 5]
    assert answer.done


@pytest.mark.parametrize("text", ["{", '{"choices": 5}', '{"error": {"message": "dead"}}'])
def test_what_is_no_event_is_an_error(text: str) -> None:
    answer = Answer()
    answer.feed(event(text) + event("[DONE]"), 0.0)
    assert answer.error
    assert not answer.whole


# ---------------------------------------------------------------- what it is worth
SIDE_BY_SIDE = [compared.Compared([compared.Row("ttft_mean_s", 0.01, 0.0081)], [], None, [], [], None, {})]  # type: ignore[arg-type]


def late(of_s: float, first_s: float = 0.0) -> Table:
    one = Sent()
    one.due_s, one.sent_s, one.first_s = 1.0, 1.0 + of_s, 1.0 + of_s + first_s
    return table([one])


def test_a_client_that_is_late_measures_nothing() -> None:
    assert not lateness(late(0.004), 0.1).is_late
    assert lateness(late(0.006), 0.1).is_late
    assert not lateness(late(0.006, first_s=1.0), 0.1).is_late, "a hundredth of the time to first token"
    assert lateness(late(0.2, first_s=100.0), 0.1).is_late


def test_that_nothing_was_measured_stands_before_by_how_much_the_simulation_is_off() -> None:
    """ "Simulated against measured: −19 %" stood on top, and "this machine is too slow for the load" elsewhere."""
    slow = "this is no measurement of the load that was asked for: the client was late (p99 may be 5.0 ms)"
    said = page.sentence(SIDE_BY_SIDE, ["200 requests", slow, slow])
    assert said.startswith(f"T{slow[1:]}. Simulated against measured: mean time to first token −19")
    assert page.sentence(SIDE_BY_SIDE, ["200 requests"]).startswith("Simulated against measured")


def test_a_mock_that_writes_late_is_said_to_by_who_measures_it() -> None:
    of = Late()
    for i in range(100):
        of.add(0.006 if i < 3 else 0.001)
    text = "\n".join([*of.lines(LATE), *of.counter(BEYOND), ""])
    view = between({}, parsed(text))
    assert view.totals == {"written": 100.0, "written_late": 3.0}
    assert "3.0 % of its tokens" in late_mock(view)[0]
    assert late_mock(view)[0].startswith("this is no measurement of what the mock simulates")
    assert not late_mock(between({}, {"prebleexp:late_seconds_count": 1000.0, "prebleexp:late_tokens_total": 3.0}))
    assert not late_mock(View({}, {})), "a real server says nothing of it"


def test_times_below_half_a_second_are_drawn_in_milliseconds_at_round_numbers() -> None:
    of = cumulative.in_milliseconds(
        cumulative.Distribution("TTFT", "seconds", {"measured": np.linspace(0.0073, 0.0081, 50)})
    )
    assert (of.x, of.lines["measured"][0]) == ("milliseconds", pytest.approx(7.3))
    drawn = cumulative.figure("one", "One", Verdict(""), [of], "", Columns((), ()))
    marks = re.findall(r">([\d.]+)</text>", drawn.panels[0].svg)
    assert 2 <= len(marks) <= 6
    assert all(len(mark.replace(".", "")) <= 3 for mark in marks), "0.0077 and 0.0078 ran into each other"


def test_what_a_client_cannot_know_is_nothing() -> None:
    made, _ = sent(requests())
    known = outcome(made, 1, 1.0)
    metrics = dict(measure(requests(), known)) | dict.fromkeys(unknown(made))
    assert metrics["n_finished"] == 4
    assert metrics["hit_ratio"] == pytest.approx(16 / 26)
    assert metrics["evicted_tokens"] is None
    assert metrics["availability"] is None
    assert metrics["ttft_mean_s"] == pytest.approx(float((made.first_s - made.due_s).mean()))
    assert sum(known.gaps_counts[0]) == 8


def test_counters_of_engines_are_differences_and_one_that_went_back_is_left_out() -> None:
    text = 'a_total{x="}"} 5\n# TYPE a counter\na_total 2 1700000000\nnan_ x\n'
    assert parsed(text) == {"a_total": 7.0}
    before = {"vllm:num_preemptions_total": 5.0, "vllm:prefix_cache_hits_total": 10.0}
    after = {"vllm:num_preemptions_total": 7.0, "vllm:prefix_cache_hits_total": 4.0}
    assert between(before, after).totals == {"preemptions": 2.0}


# ---------------------------------------------------------------- the command
LOAD = ("workload=vllm_bench", "workload.num_prompts=12", "workload.request_rate=100", "workload.random_output_len=4")
LOAD = (*LOAD, "workload.random_input_len=20", "gpus=2", "policy=lor")


def at_a_server(run: Any) -> Any:
    """`run` is called in a thread with a server's URL."""

    async def main() -> Any:
        async with serving() as seen:
            return await asyncio.to_thread(run, f"http://127.0.0.1:{seen.port}")

    return asyncio.run(main())


def test_how_long_it_takes_at_least_is_said_before_anything_is_sent() -> None:
    chats = ["workload=chats", "rps=6", "duration_s=40", "workload.turns=3", "workload.think_s=20", "policy=lor"]
    cell = job(chats).cells[0]
    stream = measured.stream(cell)
    said = command._sending(cell, stream, "http://a")
    seconds = float(re.search(r"requests in at least (\S+) s: later turns come after duration_s=40$", said)[1])  # type: ignore[index]
    assert 40 < seconds == pytest.approx(float(np.nanmax(runs.run(cell, stream).outcome.due_s)), rel=0.2)
    assert said.startswith(f"prebleexp: sending seed 0 to http://a, {len(stream):,} requests in at least ")
    cell = job([*chats, "horizon=stop"]).cells[0]
    assert command._sending(cell, stream, "http://a").endswith("requests in at least 40 s"), "there it is cut off"


def test_an_idle_engines_requests_wait_in_no_queue_and_pass_its_frontend_first() -> None:
    """Ten requests, a second apart. Behind the frontend nobody is before them: all but the prompt and the answer is
    the row of network, frontend and router."""
    words = ["workload=vllm_bench", "workload.num_prompts=10", "workload.request_rate=1", "workload.burstiness=1e6"]
    words += ["workload.random_input_len=20", "workload.random_output_len=4", "gpus=1", "policy=lor", "engine=vllm"]
    cell = job([*words, "duration_s=20"]).cells[0]
    watched = phases.Watched(10)
    made = runs.run(cell, on_event=watched)
    fixed, each = cell.hardware.frontend_s
    means_s = {"queue": 0.5, "prefill": 0.25, "decode": 1.0}
    kept = {"state": np.full(10, State.FINISHED), "latency_s": np.full(10, 2.0)}
    rest, queue, prefill, decode = phases.phases(means_s, kept, made, watched)
    assert (rest.measured_s, queue.measured_s) == (0.25, 0.5), "what is left of a latency of 2 s"
    assert rest.simulated_s == pytest.approx(fixed + 20 * each)
    assert rest.simulated_s > 0.005
    assert queue.simulated_s == 0
    assert prefill.simulated_s == pytest.approx(made.outcome.ttft_s.mean() - rest.simulated_s)
    assert decode.simulated_s == pytest.approx((made.outcome.latency_s - made.outcome.ttft_s).mean())


@pytest.mark.thorough
def test_a_measurement_beside_an_engine_with_a_loop_of_its_own_has_no_phases() -> None:
    words = ["workload=instructions", "rps=5", "duration_s=2", "gpus=1", "policy=lor", "engine=released"]
    cell = job(words).cells[0]
    n = len(runs.draw(cell))
    kept = {"state": np.full(n, State.FINISHED), "output_seen": np.full(n, 3), "latency_s": np.full(n, 2.0)}
    made, watched = compared.simulated(cell, kept, "due")
    assert (made.outcome.state == State.FINISHED).all()
    assert phases.phases({"queue": 0.5}, kept, made, watched) == []


@pytest.mark.slow
def test_a_measurement_is_kept_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setenv(command.KEY, "sk-secret")
    words = [f"live_dir={tmp_path}", "name=one", "replications=2", "late_limit_s=1000", *LOAD]
    read = command.COMMANDS[""]
    code = at_a_server(lambda url: read.run(read.read("live", [f"url={url}", *words, "output=json"])))
    rows = json.loads(capsys.readouterr().out)
    assert code in (0, 1), "1: this machine was late"
    assert [row["seed"] for row in rows] == [0, 1]
    assert [row["n_finished"] for row in rows] == [12, 12]
    of = kept.read(tmp_path / "one")
    assert of.seeds == [0, 1]
    assert "sk-secret" not in (tmp_path / "one" / "about.json").read_text()
    columns = of.requests(1)
    assert columns["measured_prompt_tokens"].tolist() == [20] * 12
    assert of.about["runs"][0]["server"]["means_s"] == {"queue": 0.25}
    beside = command.COMMANDS["compare"]
    pages = f"reports_dir={tmp_path / 'reports'}"
    assert beside.run(beside.read("live compare", [str(tmp_path / "one"), "output=json", "report=none"])) == 0
    assert not (tmp_path / "reports").exists()
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 2
    assert found[0]["metrics"]["n_finished"] == {"measured": 12, "simulated": 12, "ratio": 1.0}
    assert {one["name"] for one in found[0]["requests"]} == {"ttft", "tpot", "latency"}
    assert beside.run(beside.read("live compare", [str(tmp_path / "one"), pages])) == 0
    shown = capsys.readouterr()
    assert "Simulated against measured: mean time to first token" in shown.err
    page = (tmp_path / "reports" / "live-one" / "index.html").read_text()
    assert "one: measured and simulated" in page
    assert "Request by request" in page
    with pytest.raises(InvalidInput, match=r"no measurement of seed 7; valid: \[0, 1\]"):
        beside.run(beside.read("live compare", [str(tmp_path / "one"), "seed=7"]))
    assert "simulated / measured" in shown.out
    parts = {one["name"]: one for one in found[0]["phases"]}
    assert [one["measured_s"] for one in parts.values()] == [None, 0.25, None, None], "its server tells no more"
    latency_s = found[0]["metrics"]["latency_mean_s"]["simulated"]
    assert sum(one["simulated_s"] for one in parts.values()) == pytest.approx(latency_s)
    assert min(one["simulated_s"] for one in parts.values()) >= 0
    assert parts["decode"]["simulated_s"] > parts["network, frontend, router"]["simulated_s"]
    assert "What a request's time is made of" in page.replace("&#39;", "'")
    with pytest.raises(InvalidInput, match="has a measurement already"):
        at_a_server(lambda url: read.run(read.read("live", [f"url={url}", *words])))


def test_a_measurement_is_written_as_vllms_benchmark_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = command.COMMANDS[""]
    words = [f"live_dir={tmp_path}", "name=two", "output=vllm_bench", *LOAD]
    at_a_server(lambda url: read.run(read.read("live", [f"url={url}", *words])))
    written = json.loads(capsys.readouterr().out)
    assert (written["completed"], written["failed"], written["model_id"]) == (12, 0, "tiny")
    assert written["input_lens"] == [20] * 12
    assert written["output_lens"] == [4] * 12
    columns = kept.read(tmp_path / "two").requests(0)
    assert written["ttfts"] == pytest.approx(columns["ttft_sent_s"].tolist())
    assert [len(one) for one in written["itls"]] == [3] * 12


@pytest.mark.parametrize("seeds", [0, 1])
def test_a_measurement_on_a_full_disk_is_shown_before_it_is_said_to_be_lost(
    seeds: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so many seeds the files have room."""
    writing, paths = kept.durable.writing, list[Path]()

    @contextmanager
    def fills(path: Path) -> Iterator[Any]:
        paths.append(path)
        if len(paths) <= 2 * seeds:
            with writing(path) as file:
                yield file
        else:
            with Path("/dev/full").open("wb") as file:
                yield file

    monkeypatch.setattr(kept.durable, "writing", fills)
    words = [f"live_dir={tmp_path}", "name=three", "replications=3", "late_limit_s=1000", "output=json", *LOAD]
    read = command.COMMANDS[""]
    with pytest.raises(PrebleexpError) as lost:
        at_a_server(lambda url: read.run(read.read("live", [f"url={url}", *words])))
    assert not isinstance(lost.value, InvalidInput), "that would end with code 2"
    shown = capsys.readouterr()
    assert [row["n_finished"] for row in json.loads(shown.out)] == [12] * (seeds + 1), "no more are sent"
    why = f"{tmp_path / 'three'} cannot be written: No space left on device"
    assert str(lost.value) == f"the measurement of seed {seeds} is not kept: {why}"
    assert ("kept in" in shown.err) == (seeds > 0)
    if seeds:
        assert kept.read(tmp_path / "three").seeds == [0]
    else:
        with pytest.raises(InvalidInput, match="has no measurement"):
            kept.read(tmp_path / "three")


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    read = command.COMMANDS[""]

    async def run() -> list[Any]:
        async with serving() as seen:
            words = [f"url=http://127.0.0.1:{seen.port}", f"live_dir={tmp_path / 'file'}", "name=one", *LOAD]
            with pytest.raises(InvalidInput, match=r"file/one cannot be written: Not a directory"):
                await asyncio.to_thread(read.run, read.read("live", words))
            return seen.bodies

    assert asyncio.run(run()) == []


def test_simulated_requests_come_when_they_were_sent() -> None:
    made = requests()
    late_by = np.array([0.25, 0.5, np.nan, 0.0])
    columns = {"state": np.full(4, int(State.FINISHED)), "output_seen": np.full(4, 7), "sent_s": late_by}
    changed = compared.as_measured(made, columns, "sent")
    assert changed.arrival_s.tolist() == [0.25, 0.5, 0.5, 0.5]
    assert changed.output_tokens.tolist() == [7] * 4
    assert compared.as_measured(made, columns, "due").arrival_s.tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "url is missing; give the URL of a server as url=http://127.0.0.1:8000"),
        (["url=ftp://x"], "url=ftp://x is not valid; it must be a URL as http://127.0.0.1:8000"),
        (["url=http://127.0.0.1:9"], "url=http://127.0.0.1:9 does not answer: no connection"),
        (["url=http://127.0.0.1:9", "model=m", "warm=run"], "warm"),
        (
            ["url=http://127.0.0.1:9", "model=m", "prompt=text", "answers=real"],
            "answers=real is not valid with prompt=text",
        ),
        (["url=http://127.0.0.1:9", "model=m", "timeout_s=0"], "timeout_s=0.0 is not valid"),
    ],
)
def test_what_cannot_be_measured_is_said(words: list[str], said: str, tmp_path: Path) -> None:
    read = command.COMMANDS[""]
    with pytest.raises(InvalidInput) as refused:
        read.run(read.read("live", [f"live_dir={tmp_path}", *words]))
    assert said in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_measurement_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no measurement"):
        kept.read(tmp_path)
