"""Contracts of plugs, for whoever writes one: `check_policy(MyPolicy())` in a test of your own.

Each check raises AssertionError with one line that says what does not hold, on which engine and how many GPUs. The
package's own policies, engines and hardware go through them too.
"""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np

from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.faults.base import Event, Faults
from prebleexp.faults.timeline import Timeline
from prebleexp.hardware.base import Hardware
from prebleexp.hardware.preble import PrebleFit
from prebleexp.lengths.base import Lengths
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, State, Workload
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.output_length import OutputLength

ENGINES = (
    Continuous(),
    Continuous(queue="fcfs", prefill="chunked", chunk_tokens=128, block_tokens=16, decode_steps=1),
    Continuous(queue="priority_groups", prefill="chunked"),
)
GPUS = (1, 3, 8, 300)
KV_TOKENS = (4_000, 100_000)
"""the first is scarce: contexts are evicted and requests sent back"""
MODEL = PrebleFit(
    linear=((0, 5.0, 0.1, 0.0),),
    attention=(1024, 0.3, 0.2, 0.0002),
    shared=(1024, 1 << 24),
    request=(1 << 20, 0, 0.001, 0.002, 0.000002),
    efficiency=0.9,
    kv_tokens=100_000,
)

UNKNOWN = Lengths()
LOST = Timeline(
    detect_ms=100,
    happen=(
        *(Event(1.0, 0, "down"), Event(1.2, 1, "down"), Event(1.6, 0, "up"), Event(1.7, 1, "up")),
        *(Event(2.0, 2, "drain"), Event(2.3, 0, "down"), Event(2.35, 0, "up"), Event(2.6, 2, "up")),
        *(Event(3.0, 2, "down"), Event(3.1, 0, "down"), Event(3.2, 1, "down")),
        *(Event(3.6, 1, "up"), Event(3.7, 2, "up"), Event(4.0, 0, "up")),
    ),
)
"""of 3 GPUs: two are lost, one is drained, one is back before anybody notices, and then all are lost"""


def stream(seed: int = 0, requests: int = 160, seconds: float = 4.0, groups: int = 6) -> Workload:
    """Prompts that share prefixes, some of them simultaneous, with one long output in three; most are of sessions."""
    rng = np.random.default_rng(seed)
    group = rng.integers(groups, size=requests, dtype=np.int32)
    own = rng.integers(1, 120, size=requests, dtype=np.int32)
    arrivals = np.sort(np.round(rng.uniform(0, seconds, size=requests), 2))
    ids = np.column_stack([group, groups + np.arange(requests, dtype=np.int32)])
    tokens = np.column_stack([300 + 50 * group, own])
    long = rng.integers(50, 200, size=requests, dtype=np.int32)
    outputs = np.where(rng.random(requests) < 1 / 3, long, np.int32(3))
    offsets, most = 2 * np.arange(requests + 1), np.full(requests, 200, np.int32)
    prompts = (300 + 50 * group) + own
    session = rng.integers(-1, 40, size=requests, dtype=np.int32)
    return Workload(arrivals, prompts, outputs, most, group, offsets, ids.ravel(), tokens.ravel(), session=session)


def serve(
    policy: Policy,
    engine: Engine,
    gpus: int,
    workload: Workload,
    hardware: Hardware = MODEL,
    lengths: Lengths = UNKNOWN,
    faults: Faults | None = None,
) -> Outcome:
    """All of it. Of output lengths nothing is known, unless `lengths` says so, and nothing happens to GPUs."""
    return simulate(
        workload,
        gpus=gpus,
        policy=policy,
        hardware=hardware,
        engine=engine,
        lengths=lengths,
        overhead=Overhead(),
        duration_s=10.0,
        horizon="drain",
        seed=1,
        faults=faults,
    )


# ---------------------------------------------------------------- policies
def check_policy(policy: Policy) -> None:
    """Frozen and able to travel; legal answers on 1 to 300 GPUs, with ample and with scarce memory; the same bytes
    again, and as plain Python; nothing it does depends on what has not happened yet; and requests that are lost with
    their GPU can be routed again."""
    check_frozen(policy)
    workload = stream()
    for gpus in GPUS:
        for kv_tokens in KV_TOKENS:
            engine, hardware = ENGINES[gpus % len(ENGINES)], dataclasses.replace(MODEL, kv_tokens=kv_tokens)
            where = f"{type(policy).__name__} on {gpus} GPUs with {kv_tokens} tokens of KV"
            made = serve(policy, engine, gpus, workload, hardware)
            ended = np.isin(made.state, (State.FINISHED, State.REFUSED))
            assert ended.all(), f"{where}: {int((~ended).sum())} of {len(made)} requests were never served"
            _same(made, serve(policy, engine, gpus, workload, hardware), f"{where}: a second run")
            if gpus < max(GPUS):
                _same(made, serve(interpreted(policy), engine, gpus, workload, hardware), f"{where}: as plain Python")
    for engine in ENGINES:
        check_causal(policy, engine)
    check_losses(policy)


def interpreted(policy: Policy) -> Policy:
    """The same policy as plain Python."""
    kind = type(policy)
    plain = type(kind.__name__, (kind,), {"compiled": False, "__module__": kind.__module__})
    return plain(**{one.name: getattr(policy, one.name) for one in dataclasses.fields(policy) if one.init})  # type: ignore[no-any-return]


def check_frozen(plug: Any) -> None:
    """It is a frozen dataclass, and what a worker process unpacks is equal to it."""
    kind = type(plug)
    parameters = getattr(kind, "__dataclass_params__", None)
    assert parameters is not None, f"{kind.__name__} is not a dataclass"
    assert parameters.frozen, f"{kind.__name__} is not frozen: write @dataclass(frozen=True)"
    assert pickle.loads(pickle.dumps(plug)) == plug, f"{kind.__name__} does not travel: its copy is not equal to it"  # noqa: S301


def check_causal(policy: Policy, engine: Engine, gpus: int = 4) -> None:
    """Nobody hears of anything before it has happened: if requests that have not arrived, and outputs that have not
    ended, were others, every decision until then would be the same."""
    workload = stream(seed=2)
    before = serve(policy, engine, gpus, workload)
    for moment in np.quantile(workload.arrival_s, (0.3, 0.6, 0.9)):
        later = workload.arrival_s > moment
        running = ~(before.finish_s <= moment)  # not finished then, or not arrived
        other = dataclasses.replace(workload, output_tokens=workload.output_tokens + np.where(running, 150, 0))
        after = serve(policy, engine, gpus, other)
        wrong = np.flatnonzero((before.gpu != after.gpu) & ~later)
        assert not len(wrong), (
            f"{type(policy).__name__} on {type(engine).__name__}: request {wrong[0]} goes to another GPU if outputs "
            f"that had not ended at {moment:g} s are longer: something told it before"
        )


def check_losses(policy: Policy) -> None:
    """Asked again about requests that were lost with their GPU, after it has heard that they are finished, it answers
    until all are served; the same as plain Python."""
    workload, name = stream(seed=4), type(policy).__name__
    hardware = dataclasses.replace(MODEL, kv_tokens=min(KV_TOKENS))
    made = serve(policy, ENGINES[1], 3, workload, hardware, faults=LOST)
    ended = np.isin(made.state, (State.FINISHED, State.REFUSED))
    assert ended.all(), f"{name}, whose GPUs are lost: {int((~ended).sum())} of {len(made)} requests were never served"
    assert made.losses.any(), f"{name}, whose GPUs are lost: nothing is lost"
    _same(made, serve(interpreted(policy), ENGINES[1], 3, workload, hardware, faults=LOST), f"{name}: as plain Python")


# ---------------------------------------------------------------- engines, costs, workloads
def check_engine(engine: Engine) -> None:
    """Everything is served or refused, tokens and memory are accounted for, a second run gives the same bytes, and
    routers hear of nothing before it happens."""
    from prebleexp.policies.lor import LeastOutstanding
    from prebleexp.policies.random import Random

    check_frozen(engine)
    name = type(engine).__name__
    for kv_tokens in KV_TOKENS:
        workload, hardware = stream(seed=3), dataclasses.replace(MODEL, kv_tokens=kv_tokens)
        made = serve(LeastOutstanding(), engine, 3, workload, hardware)
        finished = made.state == State.FINISHED
        wanted = np.minimum(workload.output_tokens, workload.max_new_tokens)
        assert (finished | (made.state == State.REFUSED)).all(), f"{name}: not every request was served or refused"
        assert (made.output_seen[finished] == wanted[finished]).all(), f"{name}: outputs are not of their length"
        seen = (made.hit_tokens + made.prefilled_tokens)[finished]
        assert (seen == workload.prompt_tokens[finished]).all(), f"{name}: prompt tokens are neither found nor computed"
        assert (made.gpu_peak_kv_tokens <= kv_tokens).all(), f"{name}: more KV is in use than there is"
        assert (made.ttft_s[finished] > 0).all(), f"{name}: a first token takes no time"
        assert (made.latency_s >= made.ttft_s)[finished].all(), f"{name}: a last token comes before the first"
        _same(made, serve(LeastOutstanding(), engine, 3, workload, hardware), f"{name}: a second run")
    for policy in (LeastOutstanding(), Random()):
        check_causal(policy, engine)


def check_cost(hardware: Hardware) -> None:
    """A run ends; and where nothing waits, a longer prompt takes no less time to its first token."""
    from prebleexp.policies.lor import LeastOutstanding

    check_frozen(hardware)
    lengths = np.array([64, 256, 1024, 4096], np.int32)
    lengths = lengths[lengths < min(hardware.context_length, hardware.kv_tokens) - 1]
    n, one = len(lengths), np.ones(len(lengths), np.int32)
    rows = np.arange(n, dtype=np.int32)
    alone = Workload(100.0 * rows.astype(np.float64), lengths, one, one, -one, np.arange(n + 1), rows, lengths)
    made = serve(LeastOutstanding(), Continuous(), 1, alone, hardware)
    assert (made.state == State.FINISHED).all(), f"{type(hardware).__name__}: not every request was served"
    assert (np.diff(made.ttft_s) >= 0).all(), f"{type(hardware).__name__}: longer prompts take {made.ttft_s} s"


def check_workload(source: WorkloadSource, output_length: OutputLength) -> None:
    """The same seed gives the same stream, and another gives another, unless it is recorded."""
    check_frozen(source)
    drawn, again, other = (
        source.draw(rps=8.0, duration_s=5.0, seed=seed, output_length=output_length) for seed in (0, 0, 1)
    )
    name = type(source).__name__
    columns = [one.name for one in dataclasses.fields(Workload) if one.name != "predictions"]
    for column in columns:
        equal = np.array_equal(getattr(drawn, column), getattr(again, column), equal_nan=column.endswith("_s"))
        assert equal, f"{name}: column {column} differs between two draws of one seed"
    same = len(drawn) == len(other) and np.array_equal(drawn.arrival_s, other.arrival_s)
    assert same != ("seed" in source.obeys), f"{name}: another seed gives {'the same' if same else 'another'} stream"


def _same(one: Outcome, other: Outcome, what: str) -> None:
    for field in dataclasses.fields(Outcome):
        a, b = getattr(one, field.name), getattr(other, field.name)
        assert np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind == "f"), f"{what} differs in {field.name}"
