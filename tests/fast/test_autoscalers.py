"""How many GPUs there are to be: rules by hand, and clusters that grow and shrink."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from prebleexp.autoscalers.base import Rule
from prebleexp.autoscalers.dynamo_load import DynamoLoad
from prebleexp.autoscalers.hpa import HPA
from prebleexp.autoscalers.keda import KEDA
from prebleexp.autoscalers.knative import Knative
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput, NeverEnds
from prebleexp.experiment.key import content, key
from prebleexp.experiment.runs import draw, simulate_cell
from prebleexp.faults.base import Faults
from prebleexp.launch import configs, from_cache
from prebleexp.launch.configure import cells
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.sim.fleet import Fleet
from prebleexp.sim.records import DOWN
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Setup, State, Workload
from tests.support.accounted import accounted
from tests.support.by_hand.small_cluster import alike
from tests.support.by_hand.timeline import happens
from tests.support.costs.linear_cost import LinearCost
from tests.support.policies.watcher import Watcher

pytestmark = pytest.mark.thorough

SETUP = Setup(8, 0, 1, 1000, 1000, alike([0.0], 16, 1))


def fleet(gpus: int, load: float = 0.0, waiting: int = 0, tokens: float = 0.0, kv_use: float = 0.0) -> Fleet:
    """GPUs that are all alike."""
    columns: list[Any] = [np.full(gpus, one) for one in (load, 0.0, tokens, kv_use)]
    return Fleet(gpus, *columns, waiting)


def asked(rule: Rule, *seen: tuple[float, Fleet]) -> list[int]:
    mine = rule.start(SETUP)
    return [rule.desired(mine, one, now) for now, one in seen]


# ---------------------------------------------------------------- rules by hand
def test_hpa_brings_the_load_to_its_target() -> None:
    rule = HPA(target=60.0)
    assert asked(rule, (0.0, fleet(4, 90.0))) == [6]
    assert asked(rule, (0.0, fleet(4, 63.0))) == [4], "within a tenth nothing changes"
    assert asked(rule, (0.0, fleet(1, 6000.0))) == [5], "four more at a time, …"
    assert asked(rule, (0.0, fleet(10, 6000.0))) == [20], "… or twice as many"


def test_hpa_goes_down_to_the_highest_of_five_minutes() -> None:
    later = [(15.0 * i, fleet(4, 20.0)) for i in range(1, 22)]
    assert asked(HPA(target=60.0), (0.0, fleet(4, 60.0)), *later) == [4] * 21 + [2], "the 60 has left at 315 s"


def test_keda_wants_none_where_nothing_happens() -> None:
    busy, idle, waits = fleet(2, 16.0), fleet(2), fleet(0, waiting=1)
    seen = (30.0, busy), (300.0, idle), (329.0, idle), (330.0, idle), (900.0, waits), (930.0, fleet(1, 1.0))
    assert asked(KEDA(window_s=0.0), *seen) == [2, 1, 1, 0, 1, 1]


def test_knative_goes_by_a_mean_and_panics_by_a_short_one() -> None:
    calm = [(2.0 * i, fleet(2, 70.0)) for i in range(1, 40)]
    assert asked(Knative(), *calm) == [2] * 39
    peak = [(78.0 + 2 * i, fleet(2, 140.0)) for i in range(1, 4)]
    later = [(84.0 + 2 * i, fleet(4, 35.0)) for i in range(1, 40)]
    found = asked(Knative(), *calm, *peak, *later)
    assert found[39:42] == [3, 4, 4], "a mean of 233 over 6 s needs four, twice what there are"
    assert found[42:71] == [4] * 29, "never less for a minute"
    assert found[-1] == 2


def test_dynamo_takes_one_more_or_less() -> None:
    seen = [fleet(2, tokens=1001.0), fleet(2, kv_use=1.1), fleet(2, tokens=500.0), fleet(2, tokens=99.0, kv_use=0.59)]
    found = [asked(DynamoLoad(), (5.0, one))[0] for one in [*seen, fleet(2, tokens=99.0, kv_use=0.61)]]
    assert found == [3, 3, 2, 1, 2]


# ---------------------------------------------------------------- clusters
STEP = LinearCost(step_s=0.125, token_s=0.0, context_token_s=0.0, kv_tokens=16 * 1001, gpu_memory_gib=48)
ONE = VLLM(max_num_batched_tokens=16, max_num_seqs=1, async_scheduling=False, host_s=0.0)
"""a request of 16 prompt tokens and one of output takes 0.125 s, one at a time"""
SERVED: dict[str, Any] = {"policy": LeastOutstanding(), "hardware": STEP, "engine": ONE, "overhead": Overhead()}
SERVED |= {"duration_s": 99.0, "horizon": "drain", "seed": 0, "lengths": Max()}


class Counts:
    """How many GPUs are up after each event."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def __call__(self, world: Any) -> None:
        self.seen.append((float(world.control.now), int((world.servers.stage != DOWN).sum())))

    def at(self, now: float) -> int:
        """The last but that of the event in hand, which was not carried out yet when it was seen."""
        return [count for at_s, count in self.seen if at_s <= now][-1]


def run(workload: Workload, rule: Rule, gpus: int = 4, **given: Any) -> tuple[Outcome, Counts]:
    counts = Counts()
    made = simulate(workload, gpus=gpus, autoscaler=rule, on_event=counts, **SERVED | given)
    accounted(workload, made, requeues=True)
    return made, counts


def every(gap_s: float, since_s: float, until_s: float) -> list[float]:
    return np.arange(since_s, until_s, gap_s).tolist()


@pytest.mark.slow
def test_a_cluster_grows_as_its_load_doubles_and_shrinks_again() -> None:
    """Six requests a second are less than a GPU bears, twelve more."""
    workload = alike([*every(1 / 6, 0, 10), *every(1 / 12, 10, 30), *every(1 / 2, 30, 50)], 16, 1)
    rule = HPA(target=2.0, interval_s=0.5, window_s=3.0, burst=1)
    made, counts = run(workload, rule)
    assert (made.state == State.FINISHED).all()
    assert [counts.at(9.9), counts.at(made.end_s)] == [1, 1]
    assert max(count for at_s, count in counts.seen if 10 < at_s < 30) > 1
    alone = simulate(workload, gpus=1, **SERVED)
    assert made.ttft_s.mean() < alone.ttft_s.mean() / 2
    assert alone.gpu_on_s.sum() / 2 < made.gpu_on_s.sum() < 4 * made.end_s / 2
    late, _ = run(workload, rule, faults=Faults(init_s=3.0))
    assert late.ttft_s.mean() > made.ttft_s.mean(), "a GPU that has to be started comes late, …"
    assert late.gpu_on_s.sum() > made.gpu_on_s.sum(), "… and is paid for meanwhile"


def test_a_gpu_that_is_wanted_by_hand() -> None:
    """At the first look, at 0.25, two requests are in flight: 1 · 2 / 1 GPUs are wanted. The second is started until
    0.75, and gets the last but one; at the next look after that, nobody is there: one GPU is enough."""
    rule = HPA(target=1.0, interval_s=0.25, window_s=0.0)
    workload = alike([0.0625, 0.0625, 0.0625, 0.8125, 0.8125, 2.0], 16, 1)
    made, counts = run(workload, rule, gpus=2, faults=Faults(init_s=0.5, drain_s=9.0))
    assert made.gpu.tolist() == [0, 0, 0, 0, 0, 0]
    assert made.gpu_on_s.tolist() == [2.125, 0.25], "nobody is there at 0.5, when it is not up yet"
    patient = HPA(target=1.0, interval_s=0.25, window_s=0.5)
    made, counts = run(workload, patient, gpus=2, faults=Faults(init_s=0.5))
    assert made.gpu.tolist() == [0, 0, 0, 0, 1, 0]
    assert made.finish_s.tolist() == [0.1875, 0.3125, 0.4375, 0.9375, 0.9375, 2.125]
    assert [counts.at(0.74), counts.at(0.9)] == [1, 2]
    assert made.gpu_on_s.tolist() == [2.125, 1.0 - 0.25], "the two of 0.25 have left the window at 1.0"


def test_whoever_finds_no_gpu_wakes_one() -> None:
    made, _ = run(alike([0.0, 5.25], 16, 1), KEDA(interval_s=0.5, cooldown_s=1.0, initial=1), gpus=2)
    assert made.finish_s.tolist() == [0.125, 5.5 + 0.125], "there is one again at the next look"
    assert made.gpu_on_s.tolist() == [1.0 + 0.125, 0.0]


def test_a_gpu_that_fails_is_replaced() -> None:
    rule = HPA(target=100.0, interval_s=0.25, initial=2, least=2)
    faults = happens((1.0, 0, "down"), (2.0, 0, "up"), detect_ms=100.0)
    made, counts = run(alike(every(0.1, 0, 4), 16, 1), rule, gpus=3, faults=faults)
    assert (made.state == State.FINISHED).all()
    assert [counts.at(1.2), counts.at(1.45), counts.at(3.9)] == [1, 2, 2]
    assert made.gpu_requests[2] > 0
    np.testing.assert_allclose(made.gpu_down_s, [1.0, 0.0, 0.0])


@dataclass(frozen=True)
class Flapping(Rule):
    """Wants a GPU at every second look."""

    zero: ClassVar[bool] = True

    def start(self, setup: Setup) -> Any:
        return None

    def desired(self, mine: Any, fleet: Fleet, now: float) -> int:
        return 1 - fleet.gpus


def test_gpus_that_leave_sooner_than_requests_end_are_not_waited_for() -> None:
    """The request takes 2 s, and starts over every half a second."""
    rule, faults = Flapping(interval_s=0.25, least=0, initial=1), Faults(drain_s=0.125, on_loss="retry")
    with pytest.raises(NeverEnds, match=r"from 0 to 50 s .* 200 times, and no request ended \(1 are left\)"):
        run(alike([0.0], 16, 16), rule, gpus=1, faults=faults)
    made, _ = run(alike([0.0], 16, 16), rule, gpus=1, faults=Faults(drain_s=2.0, on_loss="retry"))
    assert made.finish_s.tolist() == [2.0], "a GPU that is drained ends what it has"


@pytest.mark.parametrize("engine", [ONE, SGLang(host_s=0.0), Continuous()], ids=["vllm", "sglang", "continuous"])
def test_whoever_gave_up_in_a_step_is_forgotten_with_its_gpu(engine: Any) -> None:
    """The first request gives up at 0.15, in the step from 0.125 to 0.25, and its GPU is drained at 0.1875. At the look
    of 0.2 it has nobody, is off, and is wanted again; its next step is of the second request alone."""
    workload = replace(alike([0.125, 0.375], 16, 1), patience_s=np.array([0.025, np.nan]))
    rule, faults = Flapping(interval_s=0.2, least=0, initial=1), happens((0.1875, 0, "drain"))
    made, _ = run(workload, rule, gpus=1, faults=faults, engine=engine)
    assert made.state.tolist() == [State.CANCELLED, State.FINISHED]
    assert made.finish_s[1] == pytest.approx(0.5, abs=0.001)


def looks(workload: Workload, rule: Rule, **given: Any) -> tuple[Outcome, list[float]]:
    """And when it was asked."""
    asked = []

    class Asked(type(rule)):  # type: ignore[misc]
        def desired(self, mine: Any, fleet: Fleet, now: float) -> int:
            asked.append(now)
            return int(super().desired(mine, fleet, now))

    made, _ = run(workload, Asked(**vars(rule)), **given)
    return made, asked


@pytest.mark.slow
def test_who_waits_for_a_gpu_that_is_lost_for_good_waits_no_longer() -> None:
    """The second GPU is started at the first look after the loss of the first; then that is lost too."""
    rule, faults = HPA(interval_s=5.0, initial=1), happens((0.0, 0, "down"), (9.0, 1, "down"))
    made, asked = looks(alike([0.0, 10.0], 16, 1), rule, gpus=2, faults=faults)
    assert made.state.tolist() == [State.FINISHED, State.UNROUTED]
    assert (made.finish_s[0], made.end_s) == (5.125, 10.0)
    assert asked == [5.0, 10.0, 15.0], "at 10 the second request is still to come"


def test_a_gpu_that_is_repaired_is_waited_for() -> None:
    faults = happens((0.0, 0, "down"), (4000.0, 0, "up"))
    made, _ = looks(alike([0.0], 16, 1), HPA(interval_s=600.0), gpus=1, faults=faults)
    assert made.finish_s.tolist() == [4200.125]


@pytest.mark.slow
def test_whoever_is_held_waits_as_long_as_a_rule_remembers() -> None:
    """At 1, 2, … until nothing that was seen before 1, when all was still, makes a difference, and once more."""
    made, asked = looks(alike([0.0], 16, 1), HPA(interval_s=1.0, window_s=2.0), policy=Watcher(-1), gpus=1)
    assert made.state.tolist() == [State.UNROUTED]
    assert (made.end_s, asked) == (0.0, [1.0, 2.0, 3.0, 4.0, 5.0])


def test_looks_at_what_is_over_do_not_make_a_run_longer() -> None:
    """Somebody is left who never comes."""
    links = {"after_offsets": np.array([0, 0, 1, 1]), "after_ids": np.array([0]), "session": np.array([0, 0, 1])}
    workload = replace(alike([0.0, 0.0, 9.0], 16, 1), **links)
    made, asked = looks(workload, HPA(interval_s=2.0), gpus=1, duration_s=5.0)
    assert made.state.tolist() == [State.FINISHED, State.FINISHED, State.NOT_DUE]
    assert (made.end_s, asked) == (0.25, [])


def test_where_all_are_wanted_the_run_is_that_without_a_rule() -> None:
    workload = alike(every(0.06, 0, 5), 40, 7)
    made, _ = run(workload, HPA(initial=3, least=3, interval_s=0.7), gpus=3)
    plain = simulate(workload, gpus=3, **SERVED)
    for name in ("gpu", "finish_s", "ttft_s", "hit_tokens", "gpu_on_s"):
        np.testing.assert_array_equal(getattr(made, name), getattr(plain, name), err_msg=name)


# ---------------------------------------------------------------- configured
@pytest.mark.slow
@pytest.mark.parametrize("option", ["hpa", "keda", "knative", "dynamo_load"])
def test_options_are_served(option: str) -> None:
    size = ["gpus=3", "policy=lor", "rps=20", "duration_s=8"]
    (cell,) = cells([f"autoscaler={option}", *size, "faults.init_s=1"])
    made = simulate_cell(cell, workload := draw(cell))
    accounted(workload, made, requeues=True)
    assert (made.state == State.FINISHED).all()
    (plain,), (never,) = cells(size), cells([*size, "faults.init_s=1"])
    assert key(plain) != key(cell)
    assert key(plain) == key(never), "no GPU is ever started"
    known: Any = content(cell)["cell"]
    (again,) = cells(from_cache.overrides_of(key(cell), known, configs.loader()))
    assert key(again) == key(cell)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["autoscaler=hpa", "autoscaler.target=0"], "autoscaler.target=0 is not valid; it must be a number > 0"),
        (["autoscaler=hpa", "autoscaler.least=0"], "autoscaler.least=0 is not valid; it must be an integer from 1"),
        (["autoscaler=hpa", "autoscaler.load=cpu"], "must be one of in_flight, queued, kv_use"),
        (["autoscaler=hpa", "autoscaler.load=kv_use"], "autoscaler.target=16.0 is not valid; it must be at most 1"),
        (["autoscaler=hpa", "autoscaler.initial=9"], "autoscaler wants 9 replicas at the beginning"),
        (["autoscaler=hpa", "autoscaler.initial=65537"], "autoscaler.initial=65537 is not valid"),
        (["autoscaler=hpa", "engine=released", "hardware=a6000_mistral_7b"], "engine=released takes no autoscaler"),
        (["autoscaler=knative", "autoscaler.utilisation=2"], "autoscaler.utilisation=2 is not valid; it must be a sh"),
        (["autoscaler=none", "autoscaler.least=2"], "autoscaler.least"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(overrides: list[str], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        cells(["gpus=8", *overrides])
    assert said in str(error.value)
    assert "\n" not in str(error.value)
