"""All designs there are: every combination of what may be chosen, but for what cannot serve."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prebleexp.cluster.groups import Cluster
from prebleexp.errors import DoesNotFit, InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure, several
from prebleexp.planning.contender import GPUS, Contender
from prebleexp.planning.promise import refuse_target
from prebleexp.planning.trials import Question
from prebleexp.recommending import bounds, not_run
from prebleexp.recommending.asked import Asked
from prebleexp.recommending.bounds import Demand, TooSlow, Work
from prebleexp.recommending.designs import MODEL, WHOLE, Design, Split
from prebleexp.recommending.not_run import LeftOut

ROUTERS = (
    *("kubernetes_service", "sglang_cache_aware", "sglang_power_of_two", "sglang_prefix_hash", "vllm_cache_aware"),
    *("vllm_power_of_two", "llmd", "llmd_precise", "dynamo_kv", "aibrix_prefix_cache", "kubeai_chwbl"),
    "production_stack_prefixaware",
)
"""where none are given: those that can be deployed as they are"""
TENSOR_PARALLEL = ("1", "2", "4", "8")
BUDGETS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "vllm": {"engine.max_num_batched_tokens": ("null", "2048"), "engine.max_num_seqs": ("null", "128")},
    "sglang": {"engine.chunked_prefill_size": ("null", "2048"), "engine.max_running_requests": ("null", "128")},
}
"""where none are given; null: what the engine takes by itself"""
CHOSEN = ("hardware", "engine", "policy")
"""groups of which several may be compared"""
GPU, TP = "hardware/gpu", "hardware.tensor_parallel"
MORE = (0, 1)
"""replicas that compute prompts, besides those that the cost model says"""


@dataclass(frozen=True)
class Space:
    designs: Sequence[Design]
    left_out: Sequence[LeftOut]
    axes: Sequence[str]
    """keys of which there are several values"""
    models: Sequence[str] = ()
    """of which there are several"""


def space(lines: Sequence[str], asked: Asked) -> Space:
    """Raises InvalidInput for lines that are not valid, and if nothing that can be had can serve."""
    given = _with_usual(several.by_key(lines), asked)
    for key, values in given.items():
        if len(values) > 1 and _group(key) not in CHOSEN:
            raise InvalidInput(f"{key}: recommend compares values of {', '.join(CHOSEN)}; of {key} it takes one")
    of = {group: {key: one for key, one in given.items() if _group(key) == group} for group in CHOSEN}
    same = [line for key, one in given.items() if _group(key) not in CHOSEN for line in one]
    hardware, policies = list(_product(of["hardware"])), list(_product(of["policy"]))
    engines = [one for kind in of["engine"].pop("engine") for one in _engines(kind, of["engine"])]
    axes = [key for key, one in given.items() if len(one) > 1]
    own = dict.fromkeys(_key(line) for one in engines for line in one)
    axes += [
        key
        for key in own
        if key not in axes and len({line for one in engines for line in one if _key(line) == key}) > 1
    ]
    routed = [(one, configure.cells([*same, *one])[0]) for one in policies]
    made = list(_made(same, hardware, engines, policies[0]))
    unfit = [(chosen, why) for chosen, why in made if isinstance(why, DoesNotFit)]
    left_out = [not_run.unfit(chosen, why, len(policies)) for chosen, why in unfit]
    served = [(chosen, one) for chosen, one in made if isinstance(one, Cell)]
    if not served:
        raise InvalidInput(f"nothing that can be had serves this: {left_out[0].said}")
    contender = Contender(served[0][1], GPUS)
    if contender.cell.cluster.groups:
        raise InvalidInput("cluster.groups: that is searched; most_gpus says how many GPUs can be had")
    if "slo.target" in given:
        refuse_target([contender.to_keep])
    demand, target = Demand.of(contender), contender.to_keep.target or contender.to_keep.strictest
    apart = configure.cells(["cluster=disaggregated"])[0].cluster if asked.split else None
    designs: list[Design] = []
    for chosen, cell in served:
        try:
            work = bounds.work(cell.hardware, demand, bounds.tpot_of(cell))
        except TooSlow as error:
            left_out.append(not_run.slow(cell.hardware, error, len(policies)))
            continue
        least = -(-bounds.replicas(work, demand, target) // cell.hardware.ranks)
        kind = cell.hardware.gpu_name
        each = cell.hardware.gpus_per_replica * cell.hardware.ranks
        had = asked.most_of(kind)
        most, price = had // each, asked.prices.an_hour(replace(cell, gpus=each))
        if least > most:
            left_out.append(not_run.short(cell.hardware, least * each, had, len(policies)))
            continue
        for line, router in routed:
            whole = replace(
                cell,
                policy=router.policy,
                reports_ms=router.reports_ms,
                names={**cell.names, "policy": router.names["policy"]},
                gpus=each,
            )
            designs += _shapes(whole, [*chosen, *line], axes, price, most, least, apart, work)
    if not designs:
        raise InvalidInput(f"nothing that can be had keeps the promise: {left_out[0].said}")
    models = [_value(line) for line in given.get(MODEL, ())] if MODEL in axes else []
    return Space(designs, left_out, axes, models)


def _with_usual(given: dict[str, list[str]], asked: Asked) -> dict[str, list[str]]:
    kinds = asked.prices.of
    found = dict(given)
    if GPU not in found:
        if not isinstance(kinds, Mapping):
            raise InvalidInput(f"{GPU}: which GPUs can be had? As {GPU}=h100,h200, or a price for each kind")
        found[GPU] = [f"{GPU}={one}" for one in kinds]
    found.setdefault(TP, [f"{TP}={one}" for one in TENSOR_PARALLEL])
    found.setdefault("policy", [f"policy={one}" for one in ROUTERS])
    found.setdefault("engine", ["engine=vllm"])
    return found


def _engines(kind: str, given: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Each engine with each of its budgets."""
    usual = {key: [f"{key}={one}" for one in values] for key, values in BUDGETS.get(_value(kind), {}).items()}
    yield from ([kind, *one] for one in _product({**usual, **given}))


def _made(
    same: Sequence[str], hardware: Sequence[list[str]], engines: Sequence[list[str]], policy: Sequence[str]
) -> Iterator[tuple[list[str], Cell | DoesNotFit]]:
    """The lines of each hardware with each engine, and the cell that they make, or why they make none."""
    for chosen in ([*one, *other] for one in hardware for other in engines):
        try:
            yield chosen, configure.cells([*same, *chosen, *policy])[0]
        except DoesNotFit as error:
            yield chosen, error


def _shapes(
    whole: Cell,
    lines: Sequence[str],
    axes: Sequence[str],
    price: float,
    most: int,
    least: int,
    apart: Cluster | None,
    work: Work,
) -> Iterator[Design]:
    group = whole.hardware.gpus_per_replica // whole.hardware.stages
    at: dict[str, Any] = {"gpu": whole.hardware.gpu_name, "tensor_parallel": group}
    chosen = {_key(line): _value(line) for line in lines}
    others = {
        key.removeprefix("engine."): chosen[key] for key in axes if key in chosen and key not in (GPU, TP, "policy")
    }
    of = {"policy": whole.names["policy"], **{key: None if one == "null" else one for key, one in others.items()}}
    yield Design({**at, "roles": WHOLE, **of}, whole, price, most, least)
    if apart is None or not _splits(whole) or most < 2:
        return
    plain = replace(apart, protocol=None, link=replace(apart.link, send=None))
    for more in MORE:
        roles = "split" if not more else f"split +{more}P"
        yield Design({**at, "roles": roles, **of}, whole, price, most, max(2, least), Split(work.share, more, plain))


def _splits(cell: Cell) -> bool:
    """Whether its prompts can have GPUs of their own."""
    cluster = cell.cluster
    return bool(cell.engine.protocols) and cell.hardware.kv_bytes > 0 and not (cluster.has_tiers or cluster.migrates)


def _product(of: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    yield from (list(one) for one in itertools.product(*of.values()))


def _group(key: str) -> str:
    return key.replace("/", ".").split(".")[0]


def _key(line: str) -> str:
    return line.partition("=")[0].lstrip("+~")


def _value(line: str) -> str:
    return line.partition("=")[2]


def question_of(design: Design, asked: Asked, share: float, seeds: int) -> Question:
    """The question that a round asks of a design."""
    from prebleexp.planning.contender import question

    made = question(
        design.contender,
        tolerance=asked.tolerance,
        seeds=max(seeds, 1),
        most_seeds=max(seeds, 1),
        requests=asked.requests,
        most_requests=0,
    )
    if not design.contender.is_nested:
        made = replace(made, requests=max(round(made.requests * share), 1))
    return made
