"""E2 as released, on workloads that its recordings do not have: random trees, long pauses, little memory, overload.

Compared with tests/data/e2, which `tests/make_recordings.py` has written, and where the executable description of the
release lies beside the checkout, with what it answers on further seeds.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prebleexp
from prebleexp.engines.released.engine import Released
from prebleexp.errors import InvalidInput
from prebleexp.lengths.known import Max, Oracle
from prebleexp.overhead.model import Overhead
from prebleexp.policies.e2_released import QUIRKS, ReleasedE2
from prebleexp.policies.prefix_tree import find_link
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import COLUMNS, Outcome, Workload
from tests import make_recordings
from tests.support.by_hand.e2 import stream
from tests.support.costs.fitted import A6000
from tests.support.places import ROOT
from tests.support.recordings.released import assert_equal
from tests.support.routers import Router, cost_of_a_token, path_of
from tests.support.sampled import sampled

SPEC = Path(os.environ.get("PREBLEEXP_SPEC", ROOT.parent / "shared" / "spec"))
REFERENCE = SPEC / "reference_model.py"
PAIRS = [(case, scheduler) for case in make_recordings.CASES for scheduler in make_recordings.KEPT]


def serve(case: str, scheduler: str, workload: dict[str, Any], quirks: tuple[str, ...] = QUIRKS) -> Outcome:
    told = make_recordings.config(case, scheduler)
    stepwise = "every" in make_recordings.CASES[case]  # short cuts order simultaneous arrivals otherwise
    return simulate(
        Workload(**workload),
        gpus=told["num_gpus"],
        policy=ReleasedE2(quirks),
        hardware=replace(A6000, kv_tokens=told["kv_tokens_effective"], context_length=told["context_len"]),
        engine=Released(told["step_cost_s"], told["output_step_cost_s"], stepwise=stepwise),
        lengths=Oracle() if scheduler == "empanada" else Max(),
        overhead=Overhead(),
        duration_s=told["duration"],
        horizon="stop",
        seed=0,
    )


def recorded(case: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The workload's columns, and everything else."""
    with np.load(make_recordings.FOLDER / f"{case}.npz", allow_pickle=False) as arrays:
        columns = dict(arrays)
    workload = {name: columns.pop(name) for name in COLUMNS}
    return workload, columns


@pytest.mark.parametrize(("case", "scheduler"), sampled(PAIRS, 8))
def test_a_run_equals_its_recording(case: str, scheduler: str) -> None:
    workload, columns = recorded(case)
    made = serve(case, scheduler, workload)
    for name in ("gpu", "ttft_s", "finish_s"):
        if f"{scheduler}.{name}" in columns:
            np.testing.assert_array_equal(getattr(made, name), columns[f"{scheduler}.{name}"], err_msg=name)
    assert made.gpu_retracted.sum() == columns[f"{scheduler}.retracted"]
    assert made.gpu_evicted_tokens.sum() == columns[f"{scheduler}.evicted_tokens"]


@pytest.mark.parametrize("scheduler", make_recordings.KEPT)
def test_everything_happens_in_the_recordings(scheduler: str) -> None:
    """Without the window's end, moves or replication, the release would have sent requests elsewhere."""
    columns = [recorded(case)[1] for case in make_recordings.CASES]
    for count in make_recordings.COUNTS:
        assert sum(int(one[f"{scheduler}.{count}"]) for one in columns) > 0, count


@pytest.mark.parametrize("quirk", QUIRKS)
def test_each_mistake_alone_sends_requests_elsewhere(quirk: str) -> None:
    others = tuple(one for one in QUIRKS if one != quirk)
    changed = 0
    for case, scheduler in PAIRS:
        workload, columns = recorded(case)
        changed += int((serve(case, scheduler, workload, others).gpu != columns[f"{scheduler}.gpu"]).sum())
    assert changed > 0


def test_it_runs_without_mistakes() -> None:
    for case, scheduler in PAIRS:
        made = serve(case, scheduler, recorded(case)[0], ())
        assert set(made.gpu.tolist()) == set(range(make_recordings.CASES[case]["gpus"]))


@pytest.mark.uncompiled
def test_a_prompt_touches_all_nodes_on_its_way() -> None:
    """Ties between nodes are broken by their last touch. S was cut for the second prompt; then comes T; then a prompt
    goes through S."""
    one = Router(ReleasedE2(), stream("S300 a100", "S300 b100", "T300", "S300 c100"), 2, cost_of_a_token())
    for now in range(4):
        one.route(now)
    tree, routed = one.memory.tree, one.memory.routed
    s, t = path_of(tree, int(routed[3].leaf))[-1], int(routed[2].leaf)
    assert s in path_of(tree, int(routed[1].leaf)), "both go through S"
    assert tree.rows[s].accessed > tree.rows[t].accessed


@pytest.mark.uncompiled
def test_a_node_that_is_cut_leaves_its_delays_to_its_upper_part() -> None:
    """The first prompt's one delay is S's from the second prompt on, which cuts S off."""
    one = Router(ReleasedE2(), stream("S300 a100", "S300 b100"), 1, cost_of_a_token())
    one.route(0)
    one.finish(0, 1, ttft_s=0.5, tpot_s=0.01)
    one.route(2)
    tree = one.memory.tree
    lower = int(one.memory.routed[0].leaf)
    links = [find_link(tree, node, 0) for node in (int(tree.rows[lower].parent), lower)]
    assert [int(tree.delays[tree.rows[link].delays].late) for link in links] == [1, 0]


@pytest.mark.parametrize("quirks", [["candidate"], ["candidate_position", "Q2"]])
def test_an_unknown_mistake_is_one_line(quirks: list[str]) -> None:
    with pytest.raises(InvalidInput) as error:
        prebleexp.run(policy=ReleasedE2(tuple(quirks)), cache_dir=None)
    message = str(error.value)
    assert quirks[-1] in message
    assert all(name in message for name in QUIRKS)
    assert "\n" not in message


@pytest.mark.parametrize("quirks", ["candidate_position", 3, None])
def test_mistakes_that_are_no_list_are_one_line(quirks: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^policy\.quirks=.* is not valid; .*$"):
        ReleasedE2(quirks)


def test_the_order_of_mistakes_does_not_matter() -> None:
    assert ReleasedE2(QUIRKS[::-1]) == ReleasedE2(QUIRKS)


if REFERENCE.is_file():

    @pytest.mark.parametrize("seed", sampled([101, 102, 103], 3))
    @pytest.mark.parametrize(("case", "scheduler"), PAIRS)
    def test_a_run_equals_what_the_description_of_the_release_answers(case: str, scheduler: str, seed: int) -> None:
        workload = make_recordings.draw(case, seed)
        released = make_recordings.reference(REFERENCE)
        expected = released.simulate(workload, make_recordings.config(case, scheduler))
        assert_equal(expected, serve(case, scheduler, workload))
