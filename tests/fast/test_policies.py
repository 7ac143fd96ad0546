"""The contract that every policy, hardware model and engine in conf/ goes through, and the plug-in interface."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import random
import re
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prebleexp
from prebleexp.engines.continuous import Continuous
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import HOLD, REFUSE, Policy
from prebleexp.policies.random import Random, python_randints
from prebleexp.policies.replay import Replay
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import View
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Longs, Outcome, Setup, State
from prebleexp.testing import check_losses
from tests.support.by_hand.one_gpu import HOST, PLAIN
from tests.support.by_hand.streams import own, stream
from tests.support.outcomes import assert_same
from tests.support.places import ROOT, names
from tests.support.plain_python import interpreted
from tests.support.sampled import examples, sampled
from tests.support.sessions import in_sessions


def cell(policy: str, gpus: int, folder: Path) -> Any:
    given = [f"policy={policy}", f"gpus={gpus}", "rps=20", "duration_s=5"]
    if policy == "replay":
        np.savez(folder / "recorded.npz", gpu=np.arange(160) % gpus)
        given.append(f"policy.path={folder / 'recorded.npz'}")
    return configure.cells(given)[0]


@pytest.mark.parametrize(("policy", "gpus"), sampled(product(names("policy"), [1, 3, 8]), 120))
def test_compiled_or_not_a_policy_gives_the_same_bytes(policy: str, gpus: int, tmp_path: Path) -> None:
    one = cell(policy, gpus, tmp_path)
    workload = in_sessions(runs.draw(one))
    made = runs.simulate_cell(one, workload)
    again = runs.simulate_cell(dataclasses.replace(one, policy=interpreted(one.policy)), workload)
    assert type(one.policy).compiled
    assert set(made.gpu.tolist()) <= set(range(gpus))
    assert_same(made, again)


@pytest.mark.slow
@pytest.mark.parametrize("policy", names("policy"))
def test_a_policy_is_asked_again_about_what_was_lost(policy: str, tmp_path: Path) -> None:
    check_losses(cell(policy, 3, tmp_path).policy)


@pytest.mark.parametrize("policy", names("policy"))
def test_a_policy_is_a_frozen_dataclass_that_travels(policy: str, tmp_path: Path) -> None:
    one = cell(policy, 2, tmp_path).policy
    assert pickle.loads(pickle.dumps(one)) == one
    assert type(one).__dataclass_params__.frozen


@pytest.mark.parametrize("hardware", names("hardware"))
def test_a_hardware_model_has_a_source_and_costs_that_grow(hardware: str) -> None:
    one = configure.cells([f"hardware={hardware}"])[0].hardware
    assert one.source
    cost, mine = one.kernels(), one.start()

    def prefill_s(n: int) -> float:
        return float(cost.step_s(None, mine, 1, n, n, 0, 0, n, cost.request_ms(None, mine, n, n)))

    prefills = [prefill_s(n) for n in (512, 1024, 4096, 8192)]
    decodes = [cost.decode_s(None, mine, b, 1000 * b, 1000 * b, 1) for b in (1, 64, 256, 512)]
    for series in (prefills, decodes):
        assert series[0] > 0
        assert series == sorted(series)
    bursts = [cost.decode_s(None, mine, 8, 8000 + 8 * i, 8000 + 8 * i, 1) for i in range(5)]
    assert cost.decode_s(None, mine, 8, 8000, 8000, 5) == sum(bursts)
    assert cost.step_s(None, mine, 0, 0, 0, 0, 0, 0, 0.0) == 0
    mixed = [cost.step_s(None, mine, 1, 512, 1024, b, 1000 * b, 1024 + 1000 * b, 1.0) for b in (1, 64, 256)]
    assert mixed[0] > 0
    assert mixed == sorted(mixed)


@pytest.mark.parametrize("engine", names("engine"))
def test_every_engine_runs(engine: str) -> None:
    assert prebleexp.run(engine=engine, replicas=2, rps=4, duration_s=3, cache_dir=None).metrics["n_finished"] == 12


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**80), st.integers(1, 300), st.integers(0, 300))
def test_random_draws_are_those_of_python(seed: int, gpus: int, count: int) -> None:
    expected = random.Random(seed)
    assert python_randints(seed, gpus, count).tolist() == [expected.randint(0, gpus - 1) for _ in range(count)]


def test_random_takes_the_seed_of_the_run_unless_it_has_its_own() -> None:
    seen = {
        seed: prebleexp.run(policy="random", rps=4, duration_s=5, seed=seed, cache_dir=None).requests.gpu.tolist()
        for seed in (1, 2)
    }
    fixed = [
        prebleexp.run(policy=Random(7), rps=4, duration_s=5, seed=seed, cache_dir=None).requests.gpu.tolist()
        for seed in (1, 2)
    ]
    assert seen[1] != seen[2]
    assert fixed[0] == fixed[1]


def test_replay_says_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    garbage, other, floats, short = (tmp_path / name for name in ("a.npz", "b.npz", "c.npz", "d.npz"))
    garbage.write_bytes(b"PK nothing")
    np.savez(other, cpu=np.zeros(3))
    np.savez(floats, gpu=np.zeros(3))
    np.savez(short, gpu=np.zeros(3, int))
    for path, message in (
        (tmp_path / "none.npz", "none.npz cannot be read: No such file"),
        (garbage, "a.npz: not a readable"),
        (other, "b.npz: there is no column gpu"),
        (floats, "c.npz: column gpu is float64"),
        (short, "d.npz: column gpu has 3 rows; the workload has 20"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(message)):
            prebleexp.run(policy=Replay(str(path)), rps=4, duration_s=5, cache_dir=None)
    with pytest.raises(InvalidInput, match=r"policy\.path=FILE"):
        Replay()


def test_a_gpu_that_does_not_exist_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", gpu=np.r_[np.zeros(19, int), 5])
    with pytest.raises(PrebleexpError, match=r"Replay sent request 19 at .* s to GPU 5; .* from 0 to 1"):
        prebleexp.run(policy=Replay(str(tmp_path / "x.npz")), gpus=2, rps=4, duration_s=5, cache_dir=None)


# ---------------------------------------------------------------- what a policy is asked and told
def serve(policy: Policy, arrivals: list[float], outputs: list[int], *, gpus: int = 1, **rest: Any) -> Outcome:
    """Prompts of 10 tokens of their own; a step takes 1 ms for each of its tokens."""
    given: dict[str, Any] = {
        "hardware": PLAIN,
        "engine": Continuous(),
        "lengths": Max(),
        "overhead": Overhead(),
        "duration_s": 1.0,
        "horizon": "drain",
        "seed": 0,
    }
    workload = stream([own(i, 10) for i in range(len(arrivals))], arrivals, outputs)
    return simulate(workload, gpus=gpus, policy=policy, **given | rest)


@dataclasses.dataclass(frozen=True)
class OneByOne(Policy):
    """One request a GPU at a time; the others are held."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        for g in view.candidates:
            if view.sent[g].outstanding == 0:
                return g
        return HOLD


PREFILL = 0.010 + HOST


def test_who_is_held_is_asked_for_again_in_order_when_something_ends() -> None:
    """Four requests at once, a prefill of 10.6 ms each. A fifth that comes when the first ends comes behind them."""
    for policy in (OneByOne(), interpreted(OneByOne())):
        made = serve(policy, [0.0] * 4 + [PREFILL], [1] * 5)
        assert made.finish_s == pytest.approx(PREFILL * np.arange(1, 6), abs=1e-12)
        two = serve(policy, [0.0] * 4 + [PREFILL], [1] * 5, gpus=2)
        assert two.gpu.tolist() == [0, 1, 0, 1, 0]
        assert two.finish_s == pytest.approx(PREFILL * np.array([1, 1, 2, 2, 3]), abs=1e-12)


@dataclasses.dataclass(frozen=True)
class Never(Policy):
    """Holds every second, refuses every third."""

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        if request % 2 == 1:
            return HOLD
        return REFUSE if request % 3 == 2 else 0


@pytest.mark.parametrize("mode", ["none", "recorded", "serial"])
@pytest.mark.parametrize("reports_ms", [0.0, 7.0])
def test_who_is_held_for_ever_is_unrouted_and_who_is_refused_is_gone(mode: str, reports_ms: float) -> None:
    overhead = Overhead(mode, decision_s=0.0001)
    for policy in (Never(), interpreted(Never())):
        made = serve(policy, [0.001 * i for i in range(9)], [2] * 9, overhead=overhead, reports_ms=reports_ms)
        finished, unrouted, refused = State.FINISHED, State.UNROUTED, State.REFUSED
        others = [unrouted, finished, unrouted, finished, unrouted, refused]
        assert made.state.tolist() == [finished, unrouted, refused, *others]
        assert made.gpu.tolist() == [0, -1, -1, -1, 0, -1, 0, -1, -1]
        assert made.gpu_requests.tolist() == [3]
        assert np.isnan(made.ttft_s[made.gpu < 0]).all()


@dataclasses.dataclass(frozen=True)
class Diary(Policy):
    """Plain Python that writes down whatever it hears, and what it sees then."""

    compiled: ClassVar[bool] = False

    def start(self, setup: Setup) -> list[Any]:
        diary.clear()
        return diary

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        mine.append(("route", request, now, [int(one) for one in view.sent.outstanding], view.gpus.copy()))
        return request % len(view.candidates)

    def first_token(self, mine: Any, view: View, request: int, now: float) -> None:
        seen = view.requests[request]
        mine.append(("first_token", request, now, float(seen.ttft_s), int(seen.output_seen), int(seen.gpu)))

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        seen = view.requests[request]
        outstanding = int(view.sent[seen.gpu].outstanding)
        mine.append(("finished", request, now, float(seen.latency_s), int(seen.output_seen), outstanding))

    def stored(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        mine.append(("stored", request, now, gpu, tokens))

    def evicted(self, mine: Any, view: View, request: int, gpu: int, tokens: int, now: float) -> None:
        mine.append(("evicted", request, now, gpu, tokens))


diary: list[Any] = []


def test_it_hears_of_everything_when_it_happens_and_once() -> None:
    """One GPU: A has 3 output tokens, B 1. Their prefill ends at 20.6 ms, two decode steps of A later."""
    made = serve(Diary(), [0.0, 0.0], [3, 1])
    first, last = float(made.ttft_s[0]), float(made.finish_s[0])
    assert first == pytest.approx(0.020 + HOST, abs=1e-12)
    assert last == pytest.approx(first + 0.002 + HOST, abs=1e-12)
    heard = [one for one in diary if one[0] != "route"]
    assert heard == [
        ("first_token", 0, first, first, 1, 0),
        ("stored", 0, first, 0, 10),
        ("first_token", 1, first, first, 1, 0),
        ("stored", 1, first, 0, 10),
        ("finished", 1, first, first, 1, 1),
        ("stored", 0, last, 0, 12),
        ("finished", 0, last, last, 3, 0),
    ]


def test_it_hears_of_what_is_evicted_for_the_next() -> None:
    """25 tokens of KV: C, of 10 and 10, leaves no room for what A and B left, the older of which goes first."""
    made = serve(Diary(), [0.0, 1.0, 2.0], [1, 1, 10], hardware=dataclasses.replace(PLAIN, kv_tokens=25))
    assert (made.state == State.FINISHED).all()
    gone = [one for one in diary if one[0] == "evicted"]
    assert [one[1:2] + one[3:] for one in gone] == [(0, 0, 0), (1, 0, 0)]
    assert [one[2] for one in gone] == sorted(one[2] for one in gone)
    assert made.gpu_evicted_tokens.tolist() == [20]


@pytest.mark.parametrize("engine", [Continuous(), Continuous(queue="fcfs", prefill="chunked", chunk_tokens=64)])
def test_nothing_is_seen_before_it_has_happened(engine: Continuous) -> None:
    """Requests of 2 tokens on 3 GPUs. What a decision sees of tokens and finishes lies behind it, to the last one."""
    rng = np.random.default_rng(1)
    arrivals = np.sort(rng.uniform(0, 2, 60)).tolist()
    made = serve(Diary(), arrivals, rng.integers(1, 9, 60).tolist(), gpus=3, engine=engine)
    for kind, request, now, *rest in diary:
        if kind == "route":
            outstanding, gpus = rest
            for g in range(3):
                sent = (made.gpu == g) & (np.arange(60) < request)
                assert outstanding[g] == (sent & (made.finish_s > now)).sum()
                started = np.array(arrivals) + made.ttft_s <= now
                assert gpus[g].running == (sent & started & (made.finish_s > now)).sum()
                assert gpus[g].queued + gpus[g].running <= outstanding[g]
        elif kind == "first_token":
            assert now == pytest.approx(arrivals[request] + made.ttft_s[request], abs=1e-12)
            assert rest[0] == made.ttft_s[request]
        elif kind == "finished":
            assert now == made.finish_s[request]
            assert rest[:2] == [made.latency_s[request], made.output_seen[request]]
    for kind in ("route", "first_token", "finished"):
        assert sorted(one[1] for one in diary if one[0] == kind) == list(range(60))
    assert [one[2] for one in diary] == sorted(one[2] for one in diary)


def test_reports_are_as_old_as_the_last_one_and_its_own_book_is_fresh() -> None:
    """Reports at 0, 0.5 and 1 s. Each request runs for seconds: at 0.3 s none was seen yet, at 0.7 s those of 0.5 s."""
    slow = dataclasses.replace(PLAIN, linear=((0, 0, 10, 0),))
    serve(Diary(), [0.0, 0.3, 0.7, 1.2], [100] * 4, hardware=slow, reports_ms=500.0)
    routes = [rest for kind, _, _, *rest in diary if kind == "route"]
    seen = [(rest[0], int(rest[1][0].running), int(rest[1][0].kv_free)) for rest in routes]
    kv = PLAIN.kv_tokens
    assert [one[0] for one in seen] == [[0], [1], [2], [3]]
    assert seen[0][1:] == (0, kv)
    assert seen[1][1:] == (0, kv)
    assert [one[1] for one in seen] == [0, 0, 2, 3]
    assert seen[3][2] < seen[2][2] < kv


# ---------------------------------------------------------------- what it may be made of
class Sums(NamedTuple):
    by_gpu: Longs
    halves: Any
    factor: float


class Deep(NamedTuple):
    sums: Sums
    calls: Longs


@compiled
def better(sums: Sums, a: int, b: int) -> bool:
    return sums.by_gpu[a] * sums.factor < sums.by_gpu[b] * sums.factor


@dataclasses.dataclass(frozen=True)
class Nested(Policy):
    """Reads fields, calls a helper, keeps arrays and numbers in tuples of tuples."""

    step: int = 3
    share: float = 0.5
    backwards: bool = False
    note: str = "not for compiled code"

    def start(self, setup: Setup) -> Deep:
        return Deep(Sums(np.zeros(setup.gpus, np.int64), np.zeros((2, setup.gpus)), 2.0), np.zeros(1, np.int64))

    def route(self, mine: Deep, view: View, request: int, now: float) -> int:
        best = view.candidates[0]
        for g in view.candidates:
            if better(mine.sums, g, best):
                best = g
        mine.sums.by_gpu[best] += self.step + (1 if self.backwards else 0)
        mine.sums.halves[1, best] += self.share * view.requests[request].prompt_tokens
        mine.calls[0] += 1
        return best


class More(NamedTuple):
    rows: Longs
    used: Longs


@dataclasses.dataclass(frozen=True)
class Outgrown(Policy):
    """A row a request, of which there are two at first."""

    def start(self, setup: Setup) -> More:
        return More(np.zeros(2, np.int64), np.zeros(1, np.int64))

    def lacks_room(self, mine: More, view: View, request: int) -> int:
        return mine.used[0] == len(mine.rows)

    def with_more_room(self, mine: More, view: View, request: int) -> More:
        return mine._replace(rows=np.concatenate([mine.rows, np.zeros(len(mine.rows), np.int64)]))

    def route(self, mine: More, view: View, request: int, now: float) -> int:
        mine.rows[mine.used[0]] = request
        mine.used[0] += 1
        return mine.rows[mine.used[0] // 2] % len(view.candidates)


class Listed(Outgrown):
    def route(self, mine: More, view: View, request: int, now: float) -> int:
        mine.rows[mine.used[0]] = request
        mine.used[0] += 1
        return view.candidates[request % len(view.candidates)]


class Once(Listed):
    """A row a request, and no more."""

    def start(self, setup: Setup) -> More:
        return More(np.zeros(setup.requests, np.int64), np.zeros(1, np.int64))

    def lacks_room(self, mine: More, view: View, request: int) -> int:
        return 0


@pytest.mark.slow
def test_one_that_has_room_for_each_request_once_is_found_out() -> None:
    check_losses(Listed())
    with pytest.raises(PrebleexpError, match=r"policy Once, .*IndexError"):
        check_losses(Once())


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Nested(), Nested(step=4, share=2.0, backwards=True), Outgrown(), OneByOne()])
def test_what_it_remembers_may_be_nested_and_grow(policy: Policy) -> None:
    settings = {"gpus": 3, "rps": 30, "duration_s": 3}
    one, other = (
        prebleexp.run(policy=each, **settings, cache_dir=None).computed.outcome
        for each in (policy, interpreted(policy))
    )
    assert_same(one, other)
    assert len(set(one.gpu.tolist())) == 3


def test_a_class_of_a_function_works_too() -> None:
    last = 2

    @dataclasses.dataclass(frozen=True)
    class Local(Policy):
        def route(self, mine: Any, view: View, request: int, now: float) -> int:
            return view.candidates[last]

    assert set(serve(Local(), [0.0] * 5, [2] * 5, gpus=3).gpu.tolist()) == {2}


# ---------------------------------------------------------------- what is wrong with it
@dataclasses.dataclass(frozen=True)
class Wrong(Policy):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return 0


class BeyondTheEnd(Wrong):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return view.prompts.ends[99999999]  # here


class BeforeTheBeginning(Wrong):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return view.candidates[-7]  # here


class ByZero(Wrong):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return 1 // (request - request)  # here


class Misspelt(Wrong):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return view.sent[0].outstandin  # here


class BrokenNotice(Wrong):
    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        view.work[77] += 1  # here


class BrokenStart(Wrong):
    def start(self, setup: Setup) -> Any:
        return setup.nonsense  # type: ignore[attr-defined]  # here


WRONG = [
    (BeyondTheEnd, "IndexError: index 99999999 is out of bounds"),
    (BeforeTheBeginning, "IndexError: index -7 is out of bounds"),
    (ByZero, "ZeroDivisionError"),
    (Misspelt, "outstandin"),
    (BrokenNotice, "IndexError: index 77 is out of bounds"),
    (BrokenStart, "AttributeError: 'Setup' object has no attribute 'nonsense'"),
]


def line_of(kind: type[Any]) -> int:
    """Of the mistake."""
    lines, first = inspect.getsourcelines(kind)
    return first + next(i for i, line in enumerate(lines) if "# here" in line)


@pytest.mark.parametrize("plain", [False, True], ids=["compiled", "plain"])
@pytest.mark.parametrize(("kind", "reason"), WRONG, ids=[kind.__name__ for kind, _ in WRONG])
def test_an_error_names_the_policy_the_file_and_the_line(kind: type[Any], reason: str, plain: bool) -> None:
    with pytest.raises(PrebleexpError) as caught:
        serve(interpreted(kind()) if plain else kind(), [0.0, 0.1], [1, 1], gpus=2)
    message = str(caught.value)
    assert f"policy {kind.__name__}" in message
    assert f"{__file__}, line {line_of(kind)}" in message
    assert reason in message
    assert "\n" not in message


class Half(Wrong):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return 0.5  # type: ignore[return-value]


class Nothing(Wrong):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize("kind", [Half, Nothing])
def test_what_is_no_integer_is_no_answer(kind: type[Any]) -> None:
    with pytest.raises(PrebleexpError, match=rf"^policy {kind.__name__} does not compile: .*integer.*$"):
        serve(kind(), [0.0], [1])
    with pytest.raises(PrebleexpError, match=rf"^policy {kind.__name__} sent request 0 at 0 s to GPU (0\.5|None); .*$"):
        serve(interpreted(kind()), [0.0], [1])


@dataclasses.dataclass(frozen=True)
class To(Policy):
    gpu: int = 0

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return self.gpu


@pytest.mark.parametrize("gpu", [2, 99, -1, -4, 2**40])
def test_only_candidates_are_answers(gpu: int) -> None:
    for policy in (To(gpu), interpreted(To(gpu))):
        with pytest.raises(PrebleexpError, match=rf"^policy To sent request 0 at 0 s to GPU {gpu}; .* from 0 to 1$"):
            serve(policy, [0.0], [1], gpus=2)


@dataclasses.dataclass(frozen=True)
class Remembers(Policy):
    what: str = "dict"

    def start(self, setup: Setup) -> Any:
        return {"dict": {"a": 1}, "list": [1], "text": "a", "objects": np.array([None])}[self.what]

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return 0


@pytest.mark.parametrize("what", ["dict", "list", "text", "objects"])
def test_what_compiled_code_cannot_remember_is_one_line(what: str) -> None:
    with pytest.raises(PrebleexpError) as caught:
        serve(Remembers(what), [0.0], [1])
    assert str(caught.value).startswith("policy Remembers")
    assert "\n" not in str(caught.value)
    if what != "objects":
        assert str(caught.value).startswith("policy Remembers: what start returns cannot be read by compiled code: ")
        assert str(caught.value).endswith(
            "; compiled = False in its class runs it as plain Python (docs/policy.md, Compiled, or plain Python)"
        )
    assert serve(interpreted(Remembers(what)), [0.0], [1]).gpu.tolist() == [0]


class ReadsText(Nested):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return len(self.note)


def test_what_compiled_code_cannot_read_is_named() -> None:
    said = rf"^policy ReadsText does not compile: {re.escape(__file__)}, line \d+.*note"
    with pytest.raises(PrebleexpError, match=said):
        serve(ReadsText(), [0.0], [1])


# ---------------------------------------------------------------- the pages that teach it
def example(file: str = "README.md") -> tuple[str, str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (source,) = [block for block in blocks if "class PowerOfTwo(" in block]
    (yaml,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return source, yaml


@pytest.mark.slow
def test_the_policy_of_the_readme_works_as_it_stands(tmp_path: Path) -> None:
    source, yaml = example()
    (tmp_path / "power_of_two.py").write_text(source)
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "power_of_two.yaml").write_text(yaml)
    command = [sys.executable, "-m", "prebleexp", "-m", "policy=lor,power_of_two", "rps=4,8", "gpus=2", "duration_s=3"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "power_of_two" in done.stdout
    assert "4 runs: 4 computed" in done.stderr


def test_the_policy_of_the_readme_balances_better_than_random() -> None:
    namespace: dict[str, Any] = {}
    exec(compile(example()[0], "<README.md>", "exec"), namespace)
    settings = {"gpus": 8, "rps": 64, "duration_s": 20}
    two = prebleexp.run(policy=namespace["PowerOfTwo"](), **settings, cache_dir=None).metrics["norm_latency_mean_s"]
    one = prebleexp.run(policy="random", **settings, cache_dir=None).metrics["norm_latency_mean_s"]
    assert two is not None
    assert one is not None
    assert two < one


@pytest.mark.slow
def test_the_tutorial_teaches_what_the_readme_shows_and_its_policies_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert example("docs/policy.md") == example()
    text = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    (tmp_path / "tutorial.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
    monkeypatch.syspath_prepend(tmp_path)
    tutorial: Any = importlib.import_module("tutorial")
    text = "".join(path.read_text() for path in tmp_path.glob("*.py"))
    names = re.findall(r"^class (\w+)\(Policy\):", text, re.MULTILINE)
    assert {"PowerOfTwo", "PowerOf"} < set(names)
    settings = {"gpus": 4, "rps": 32, "duration_s": 5}
    made = {}
    for name in names:
        policy = getattr(tutorial, name)()
        assert policy.compiled
        both = (policy, interpreted(policy))
        made[name], plain = (prebleexp.run(policy=one, **settings, cache_dir=None).computed.outcome for one in both)
        assert_same(made[name], plain)
        assert set(made[name].gpu.tolist()) == set(range(4))
    assert_same(made["PowerOfTwo"], made["PowerOf"])
    assert tutorial.PowerOf(choices=3).choices == 3
