"""What policies are told about output lengths."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import prebleexp
from prebleexp.__main__ import main
from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.released.engine import Released
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.key import key
from prebleexp.launch import configure
from prebleexp.lengths.base import Lengths
from prebleexp.lengths.binned import Binned
from prebleexp.lengths.known import Max, Oracle
from prebleexp.lengths.mean import Mean
from prebleexp.lengths.noisy import Noisy
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.policies.e2 import E2
from prebleexp.policies.least_work import LeastWork
from prebleexp.policies.lor_tokens import LeastOutstandingTokens
from prebleexp.sim.records import STEPPING, View
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Setup, State, Workload
from tests.support.costs.fitted import A6000
from tests.support.places import ROOT
from tests.support.sampled import sampled
from tests.support.sessions import in_sessions


@dataclass(frozen=True)
class Listener(Policy):
    """Writes down what it is told, and when; GPU 0 serves all."""

    compiled: ClassVar[bool] = False

    def start(self, setup: Setup) -> Any:
        told.clear()
        finished.clear()

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        seen = view.requests[request]
        told.append((now, float(seen.expected_output), bool(seen.informed)))
        return 0

    def finished(self, mine: Any, view: View, request: int, now: float) -> None:
        finished.append((now, request))


told: list[tuple[float, float, bool]] = []
finished: list[tuple[float, int]] = []


def stream(n: int, seconds: float, most: int = 50, groups: int = 2) -> Workload:
    rng = np.random.default_rng(5)
    return Workload(
        np.sort(rng.uniform(0, seconds, n)),
        np.full(n, 10),
        rng.integers(1, 60, n),  # some are cut short
        np.full(n, most),
        rng.integers(-1, groups, n),
        np.arange(n + 1),
        np.arange(n),
        np.full(n, 10),
    )


CONTINUOUS, RELEASED = Continuous(), Released(output_step_cost_s=0.0006)
ON_BOTH = pytest.mark.parametrize("engine", [CONTINUOUS, RELEASED], ids=["continuous", "released"])


def listen(
    workload: Workload,
    lengths: Lengths,
    seed: int = 0,
    policy: Policy | None = None,
    engine: Engine = CONTINUOUS,
    **rest: Any,
) -> Any:
    return simulate(
        workload,
        gpus=2,
        policy=policy or Listener(),
        hardware=A6000,
        engine=engine,
        lengths=lengths,
        overhead=Overhead(),
        duration_s=1.0,
        horizon="drain",
        seed=seed,
        **rest,
    )


def true_lengths(workload: Workload) -> Any:
    return np.minimum(workload.output_tokens, workload.max_new_tokens)


# ---------------------------------------------------------------- max, oracle, noisy
def test_max_tells_max_new_tokens_and_oracle_the_truth() -> None:
    workload = stream(40, 20)
    listen(workload, Max())
    assert told == [(now, 50.0, False) for now in workload.arrival_s]
    listen(workload, Oracle())
    assert told == [(now, length, True) for now, length in zip(workload.arrival_s, true_lengths(workload), strict=True)]


def test_noise_has_median_1_and_the_deviation_asked_for() -> None:
    n = 20_000
    workload = replace(stream(n, 10), output_tokens=np.full(n, 10_000), max_new_tokens=np.full(n, 10_000))
    for sigma in (0.2, 0.5):
        errors = np.log(Noisy(sigma).expected(workload, 3) / true_lengths(workload))
        assert abs(np.median(errors)) < 4 * sigma * np.sqrt(np.pi / 2 / n)
        assert abs(errors.std() / sigma - 1) < 4 / np.sqrt(2 * n)
        assert abs((errors < 0).mean() - 0.5) < 4 * 0.5 / np.sqrt(n)
        assert abs((abs(errors) < sigma).mean() - 0.6827) < 0.02  # normal


def test_noise_is_the_seed_s_alone() -> None:
    workload = stream(100, 10)
    one, again, other = (Noisy(0.5).expected(workload, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert (one >= 1).all()
    np.testing.assert_array_equal(Noisy(0).expected(workload, 1), true_lengths(workload))


def test_every_policy_is_told_the_same() -> None:
    """By chance too: the noise is not the policy's."""

    class Second(Listener):
        def route(self, mine: Any, view: View, request: int, now: float) -> int:
            return super().route(mine, view, request, now) + 1

    workload, heard = stream(50, 10), []
    for policy in (Listener(), Second()):
        listen(workload, Noisy(0.5), 7, policy)
        heard.append(list(told))
    assert heard[0] == heard[1]
    assert [one[1] for one in heard[0]] == Noisy(0.5).expected(workload, 7).tolist()


# ---------------------------------------------------------------- mean
@ON_BOTH
@pytest.mark.parametrize(("window", "over"), [(180, "all"), (2, "all"), (2, "prefix"), (0.5, "prefix")])
def test_the_mean_is_of_what_finished_in_the_window(window: float, over: str, engine: Engine) -> None:
    workload = stream(120, 30)
    listen(workload, Mean(window, over), engine=engine)
    assert len(told) == 120
    uninformed = 0
    for i, (now, mean, informed) in enumerate(told):
        group = workload.prefix_group[i]
        known = [
            true_lengths(workload)[j]
            for when, j in finished
            if now - window <= when <= now and (over == "all" or workload.prefix_group[j] == group)
        ]
        assert informed == bool(known)
        assert mean == (sum(known) / len(known) if known else 50)
        uninformed += not informed
    assert told[0][1:] == (50.0, False)
    assert uninformed > (10 if over == "prefix" else 0)


def test_a_mean_forgets() -> None:
    """After a pause longer than the window nothing is known again."""
    workload = replace(stream(6, 1), arrival_s=np.array([0, 5, 6, 200, 205, 206.0]))
    listen(workload, Mean(window=100))
    assert [informed for _, _, informed in told] == [False, True, True, False, True, True]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Mean(window=0), "window=0"),
        (lambda: Mean(window=float("inf")), "window=inf"),
        (lambda: Mean(window=True), "window=True"),
        (lambda: Mean(over="group"), "over=group"),
        (lambda: Noisy(-0.1), "sigma=-0.1"),
        (lambda: Noisy(float("nan")), "sigma=nan"),
        (lambda: Noisy("a"), "sigma=a"),  # type: ignore[arg-type]
        (lambda: Binned("x", 0), "bins=0"),
        (lambda: Binned("x", 2.5), "bins=2.5"),  # type: ignore[arg-type]
        (lambda: Binned(), "path=None"),
    ],
)
def test_a_value_that_is_not_valid_is_one_line(make: Any, name: str) -> None:
    with pytest.raises(InvalidInput) as error:
        make()
    assert str(error.value).startswith(f"lengths.{name} is not valid; ")
    assert "\n" not in str(error.value)


# ---------------------------------------------------------------- binned
def confusion(**changes: Any) -> str:
    content = {"edges": [1, 20, 40, 60], "matrix": [[0.7, 0.2, 0.1], [0.25, 0.5, 0.25], [0, 0.125, 0.875]]}
    return json.dumps({name: value for name, value in (content | changes).items() if value is not None})


def test_bins_are_confused_as_often_as_the_matrix_says(tmp_path: Path) -> None:
    n = 30_000
    workload = stream(n, 10)
    (tmp_path / "c.json").write_text(confusion())
    binned = Binned(str(tmp_path / "c.json"), 3)
    heard = binned.expected(workload, 1)
    np.testing.assert_array_equal(heard, binned.expected(workload, 1))
    assert (heard != binned.expected(workload, 2)).any()
    matrix, middles = np.array(json.loads(confusion())["matrix"]), [10.5, 30.0, 50.0]
    seen = np.digitize(true_lengths(workload), [20, 40])
    for i in range(3):
        rows = heard[seen == i]
        for j in range(3):
            p = matrix[i, j]
            assert abs((rows == middles[j]).mean() - p) <= 4 * np.sqrt(p * (1 - p) / len(rows))


def test_what_lies_beyond_the_edges_is_in_the_outer_bins_and_values_stand_for_bins(tmp_path: Path) -> None:
    lengths = np.array([1, 9, 10, 19, 20, 39, 40, 500])
    n = len(lengths)
    workload = replace(stream(n, 1), output_tokens=lengths, max_new_tokens=np.full(n, 1000))
    same = {"edges": [10, 20, 30, 40], "matrix": np.eye(3).tolist(), "values": [1, 2, 3]}
    (tmp_path / "c.json").write_text(json.dumps(same))
    assert Binned(str(tmp_path / "c.json"), 3).expected(workload, 0).tolist() == [1, 1, 1, 1, 2, 3, 3, 3]


BAD = {
    "not JSON": "{",
    "not a JSON object": "[1, 2]",
    "there is no matrix": confusion(matrix=None),
    "there is no edges": confusion(edges=None),
    "row 1 of matrix sums to 0.9": confusion(matrix=[[1, 0, 0], [0.5, 0.4, 0], [0, 0, 1]]),
    "negative probability in row 2": confusion(matrix=[[1, 0, 0], [0, 1, 0], [-1, 1, 1]]),
    "matrix must be 3 x 3 numbers": confusion(matrix=[[1, 0], [0, 1]]),
    "edges must be 4 numbers": confusion(edges=[1, 2, 3]),
    "edges must ascend": confusion(edges=[1, 20, 20, 60]),
    "edges has a value that is not a finite number": confusion(edges=[1, 20, 40, float("inf")]),
    "matrix has a value that is not a finite number": confusion(matrix=[[1, 0, 0], [0, float("nan"), 0], [0, 0, 1]]),
    "values must be 3 numbers": confusion(values=[1, 2]),
    "values must be > 0": confusion(values=[0, 1, 2]),
    "matrix must be 3 x 3": confusion(matrix=[1, 2, 3]),
    "edges must be 4": confusion(edges="abcd"),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_confusion_matrix_is_one_line(message: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(BAD[message])
    with pytest.raises(InvalidInput) as error:
        Binned(str(tmp_path / "c.json"), 3)
    assert message in str(error.value)
    assert "c.json" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", sampled([None, "{", "\udcff", confusion(), confusion(edges=[4, 3, 2, 1])], 3))
def test_on_the_command_line_it_is_one_line_too(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file, one that is not JSON, not text, of another size (20 bins unless told), not ascending."""
    path = tmp_path / "c.json"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    bins = [] if content == confusion() else ["lengths.bins=3"]
    given = ["lengths=binned", f"lengths.path={path}", "policy=e2", *bins, f"cache_dir={tmp_path / 'cache'}"]
    assert main(given) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "c.json" in printed.err


# ---------------------------------------------------------------- refined while requests are served
def refined(tmp_path: Path, **changed: Any) -> Binned:
    (tmp_path / "c.json").write_text(confusion(**changed))
    return Binned(str(tmp_path / "c.json"), 3, refine=True)


@ON_BOTH
@pytest.mark.parametrize(
    "policy", sampled([Listener(), LeastWork(), E2()], 3), ids=lambda policy: type(policy).__name__
)
def test_what_is_left_is_that_of_every_running_request(policy: Policy, engine: Engine, tmp_path: Path) -> None:
    """After every decision, against a recount: of a request in bin b that has produced so much, column b of the matrix
    says which lengths are still possible."""
    lengths, workload = refined(tmp_path), stream(120, 3)
    known = lengths.refined(workload, 0)
    assert known is not None
    classes, left = known
    expected = lengths.expected(workload, 0)

    def ahead(running: Any, output: Any) -> Any:
        return expected[running] - output - left[classes[running], np.minimum(output, left.shape[1] - 1)]

    assert_followed(workload, lengths, policy, ahead, engine)


@pytest.mark.slow
@ON_BOTH
@pytest.mark.parametrize(
    "lengths", [Noisy(sigma=1.0), Max(), Oracle()], ids=lambda lengths: type(lengths).__name__.lower()
)
def test_who_is_beyond_what_was_expected_has_nothing_left_not_less(lengths: Lengths, engine: Engine) -> None:
    """Otherwise what some produce too much would be taken off what others still have to."""
    workload = stream(120, 3)
    expected = lengths.expected(workload, 0)
    expected = workload.max_new_tokens if expected is None else expected

    def none(running: Any, output: Any) -> Any:
        return 0 * output

    least = assert_followed(
        workload, lengths, LeastWork(), lambda running, output: -excess(expected[running], output), engine
    )
    assert (least < -20) == isinstance(lengths, Noisy)
    assert assert_followed(workload, lengths, E2(), none, engine) == 0, "it does not ask"
    assert assert_followed(workload, lengths, Deaf(), none, engine) == 0, "it may not know"


class Deaf(Listener):
    """Lengths are no part of the key of its runs."""

    reads_lengths: ClassVar[bool] = False
    follows_running: ClassVar[bool] = True


def excess(expected: Any, output: Any) -> Any:
    return np.maximum(0, output - expected)


def assert_followed(
    workload: Workload, lengths: Lengths, policy: Policy, ahead: Callable[[Any, Any], Any], engine: Engine
) -> float:
    """After every decision, `ahead` of every GPU is the sum of `ahead` of the running requests and what each has
    produced: one token when it joined, and one with every decode step since. Returns the least."""
    taken_up, busiest, least = 0, 0, 0.0
    joined = np.full(len(workload), -1)
    begun, counted, ended = np.full(2, -1.0), np.zeros(2, int), np.zeros(2, int)

    def look(state: Any) -> None:
        nonlocal taken_up, busiest, least
        jobs, steps = (state.made, state.gpus.decode_steps) if engine == RELEASED else (state.jobs, ended)
        runs = jobs.state == State.RUNNING
        if engine == RELEASED:
            joined[runs] = state.jobs.joined_step[runs]
            taken = int(state.control.taken_up)
        else:  # steps are counted when they begin
            new = state.servers.begun_s != begun
            idle = ~new & (state.servers.stage != STEPPING)
            ended[new], ended[idle] = counted[new], state.totals.decode_steps[idle]
            begun[:], counted[:] = state.servers.begun_s, state.totals.decode_steps
            new = runs & (joined < 0)
            joined[new] = ended[state.seen.requests.gpu[new]]
            joined[~runs] = -1
            taken = int((state.seen.requests.gpu >= 0).sum()) + int(state.control.request >= 0)
        if taken == taken_up:
            return
        taken_up = taken
        for g, seen in enumerate(state.seen.gpus):
            running = np.flatnonzero(runs & (state.seen.requests.gpu == g))
            output = 1 + steps[g] - joined[running]
            assert seen.ahead == pytest.approx(ahead(running, output).sum(), abs=1e-9)
            assert seen.generated == output.sum()
            busiest, least = max(busiest, len(running)), min(least, float(seen.ahead))

    listen(workload, lengths, policy=policy, engine=engine, on_event=look)
    assert taken_up == len(workload)
    assert busiest > 3
    return least


def test_where_bins_are_single_lengths_there_is_nothing_to_refine(tmp_path: Path) -> None:
    """Told the truth, a request that has produced some has the rest left; the last bin alone has a tail."""
    edges = list(range(1, 63))
    same = {"edges": edges, "matrix": np.eye(61).tolist(), "values": [*edges[:-1]]}
    (tmp_path / "c.json").write_text(json.dumps(same))
    workload = stream(120, 3)
    known = Binned(str(tmp_path / "c.json"), 61, refine=True).refined(workload, 0)
    assert known is not None
    for length, of_class in zip(edges[:50], known[1], strict=False):
        np.testing.assert_allclose(of_class[:length], length - np.arange(length), atol=1e-6)


@pytest.mark.thorough
def test_refined_lengths_are_other_runs_and_the_rest_is_untouched(tmp_path: Path) -> None:
    lengths, workload = refined(tmp_path), stream(120, 3)
    plain = replace(lengths, refine=False)
    assert plain.refined(workload, 0) is None
    assert lengths.expected(workload, 0).tolist() == plain.expected(workload, 0).tolist()
    assert lengths.identity() != plain.identity()
    for policy, same in ((LeastWork(), False), (LeastOutstandingTokens(), True)):
        one, other = (listen(workload, each, policy=policy).gpu.tolist() for each in (lengths, plain))
        assert (one == other) == same


def test_refine_must_be_true_or_false(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="must be true or false"):
        Binned(refined(tmp_path).path, 3, refine="maybe")  # type: ignore[arg-type]


# ---------------------------------------------------------------- who reads them
TOLD = ["lengths=max", "lengths=oracle", "lengths=mean", "lengths=mean lengths.over=prefix", "lengths=noisy"]
NAMES = sorted(path.stem for path in (ROOT / "conf" / "policy").glob("*.yaml"))


def cells(policy: str, folder: Path) -> list[Any]:
    """One for everything a policy may be told."""
    (folder / "c.json").write_text(confusion())
    np.savez(folder / "gpu.npz", gpu=np.arange(160) % 3)
    common = [f"policy={policy}", "gpus=3", "rps=16", "duration_s=10", "output_length=two_point"]
    common += [f"policy.path={folder / 'gpu.npz'}"] if policy == "replay" else []
    binned = f"lengths=binned lengths.bins=3 lengths.path={folder / 'c.json'}"
    return [configure.cells([*common, *lengths.split()])[0] for lengths in [*TOLD, binned]]


@pytest.mark.slow
@pytest.mark.parametrize("policy", NAMES)
def test_a_policy_that_claims_not_to_read_lengths_does_not(policy: str, tmp_path: Path) -> None:
    """Then the key does not tell them apart either; otherwise it does."""
    ones = cells(policy, tmp_path)
    reads = ones[0].policy.reads_lengths
    assert len({key(one) for one in ones}) == (len(ones) if reads else 1)
    outcomes = [runs.simulate_cell(one, in_sessions(runs.draw(one))) for one in ones]
    for field in fields(outcomes[0]):
        if not reads:
            for other in outcomes:
                np.testing.assert_array_equal(getattr(other, field.name), getattr(outcomes[0], field.name))


@pytest.mark.parametrize("policy", sampled(["e2", "lor_tokens", "least_work", "e2_released"], 4))
def test_policies_that_read_them_go_by_them(policy: str, tmp_path: Path) -> None:
    first, *others = (runs.simulate_cell(one, runs.draw(one)).gpu.tolist() for one in cells(policy, tmp_path))
    assert any(other != first for other in others)


class Liar(Listener):
    """Reads lengths and says so; told them, it goes by them."""

    reads_lengths: ClassVar[bool] = True

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return int(view.requests[request].expected_output > 20)


def test_the_gpus_do_what_they_do_whatever_is_told() -> None:
    """max_new_tokens, not what is expected, is what they reserve and cut short by."""
    workload = stream(40, 5)
    shorter = listen(workload, Oracle(), policy=Liar())
    assert (shorter.output_seen == true_lengths(workload)).all()
    assert shorter.gpu.tolist() == (true_lengths(workload) > 20).astype(int).tolist()
    assert (listen(workload, Max(), policy=Liar()).gpu == 1).all()


def test_told_in_a_run_as_alone() -> None:
    """The seed of the run is the seed of the noise."""
    seen = {
        seed: prebleexp.run(policy="e2", lengths="noisy", gpus=3, rps=8, duration_s=5, seed=seed, cache_dir=None)
        for seed in (1, 2)
    }
    again = prebleexp.run(policy="e2", lengths="noisy", gpus=3, rps=8, duration_s=5, seed=1, cache_dir=None)
    assert seen[1].requests.gpu.tolist() == again.requests.gpu.tolist()
    assert seen[1].requests.gpu.tolist() != seen[2].requests.gpu.tolist()
