"""LoRA adapters as users set them: which requests ask for which, and what an engine with few slots makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import key
from prebleexp.launch import configure
from prebleexp.sim.types import Workload
from prebleexp.workloads.adapters import Zipf, adapted, given
from tests.support.outcomes import assert_same

SMALL = ("gpus=1", "duration_s=6")


def cell(*overrides: str) -> Cell:
    return configure.cells([*SMALL, *overrides])[0]


def test_zipf_says_how_often_each_is_asked_for() -> None:
    np.testing.assert_allclose(Zipf(3, 1.0, 0.5).shares(), [0.5, 3 / 11, 1.5 / 11, 1 / 11])
    np.testing.assert_allclose(Zipf(4, 0.0).shares(), [0, 0.25, 0.25, 0.25, 0.25])


def test_a_session_keeps_its_adapter_and_shares_of_a_stream_are_those_asked_for() -> None:
    chats = runs.draw(cell("workload=chats", "adapters=zipf", "rps=40"))
    for session in np.unique(chats.session):
        assert len(np.unique(chats.adapter[chats.session == session])) == 1
    many = runs.draw(cell("adapters=zipf", "adapters.count=4", "rps=400"))
    found = np.bincount(many.adapter, minlength=5) / len(many)
    np.testing.assert_allclose(found, Zipf(4).shares(), atol=0.05)


def test_prompts_of_two_adapters_share_no_segment_and_those_of_one_share_what_they_did() -> None:
    plain, made = runs.draw(cell()), runs.draw(cell("adapters=zipf", "adapters.count=3"))
    of = np.repeat(made.adapter, np.diff(plain.segment_offsets))
    pairs = np.unique(np.stack([plain.segment_ids, of]), axis=1)
    assert len(np.unique(made.segment_ids)) == pairs.shape[1]
    assert len(np.unique(np.stack([made.segment_ids, of]), axis=1).T) == pairs.shape[1]


def test_a_segment_is_of_one_adapter() -> None:
    one = np.ones(2, np.int32)
    columns: dict[str, Any] = {"prompt_tokens": one, "output_tokens": one, "max_new_tokens": one, "prefix_group": one}
    columns |= {"arrival_s": np.zeros(2), "segment_offsets": np.arange(3), "segment_ids": one, "segment_tokens": one}
    with pytest.raises(InvalidInput, match="segment 1 has another adapter than elsewhere"):
        Workload(**columns, adapter=np.arange(2, dtype=np.int32))


@pytest.mark.slow
def test_with_slots_for_all_adapters_only_keys_of_blocks_differ() -> None:
    """Law: max_loras = ∞ equals none, but that nothing is shared across adapters."""
    many = cell("adapters=zipf", "engine.max_loras=1000", "rps=8")
    stream = runs.draw(many)
    unnamed = stream.changed(adapter=np.zeros(len(stream), np.int32))
    assert_same(runs.simulate_cell(many, stream), runs.simulate_cell(many, unnamed))
    of_one = adapted(runs.draw(cell("rps=8")), np.ones(len(stream), np.int32))
    few = cell("adapters=zipf", "engine.max_loras=1", "rps=8")
    assert_same(runs.simulate_cell(few, of_one), runs.simulate_cell(cell("rps=8"), runs.draw(cell("rps=8"))))


@pytest.mark.slow
def test_few_slots_let_requests_wait_for_an_adapter() -> None:
    firsts = {}
    for slots in (1, 2, 8):
        made = runs.run(cell("adapters=zipf", "adapters.count=8", f"engine.max_loras={slots}", "rps=8")).metrics
        firsts[slots] = made["ttft_mean_s"]
        assert made["n_finished"] == 48
    print({slots: round(first, 3) for slots, first in firsts.items()})
    assert firsts[1] > firsts[2] > 2 * firsts[8]


def test_what_adapters_mean_to_keys_and_who_takes_none() -> None:
    assert key(cell("engine.max_loras=2")) != key(cell())
    assert key(cell("adapters=zipf")) != key(cell())
    assert "max_loras" not in cell().identity()["engine"]  # type: ignore[operator]
    assert cell().columns()["engine.max_loras"] == 1
    with pytest.raises(InvalidInput, match=r"adapters=zipf is not valid with engine=sglang, which has none"):
        cell("engine=sglang", "adapters=zipf")
    for wrong in ("adapters.count=0", "adapters.exponent=-1", "adapters.base_share=1"):
        with pytest.raises(InvalidInput, match=f"^{wrong.split('=')[0]}=.* is not valid"):
            cell("adapters=zipf", wrong)
    with pytest.raises(InvalidInput, match=r"engine\.max_loras=0 is not valid"):
        cell("engine.max_loras=0")


def test_adapters_are_drawn_by_the_seed_and_move_nothing_else() -> None:
    plain = runs.draw(cell())
    first, again, other = (given(plain, Zipf(), seed) for seed in (0, 0, 1))
    assert (first.adapter == again.adapter).all()
    assert (first.adapter != other.adapter).any()
    assert (first.arrival_s == plain.arrival_s).all()
    assert (first.segment_tokens == plain.segment_tokens).all()


# ---------------------------------------------------------------- of a log
ASKED = ["sql", None, "math", "sql", "", "base"]


@pytest.fixture
def log(tmp_path: Path) -> str:
    """Prompts of two kinds by turns, and a field that says their adapters."""
    rows = [
        {
            "ts": i,
            "messages": [{"role": "user", "content": "hello " * 40 + str(i % 2)}],
            "output_tokens": 4,
            "lora": one,
        }
        for i, one in enumerate(ASKED)
    ]
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return f"workload.path={path}"


def test_a_log_says_adapters_where_its_field_is_named(log: str) -> None:
    named = ("workload=request_log", log, "workload.load=recorded", "workload.columns={adapter: lora}")
    read = cell(*named, "engine=vllm")
    stream = runs.draw(read)
    assert stream.adapter.tolist() == [1, 0, 2, 1, 0, 0]
    first = stream.segment_ids[stream.segment_offsets[:-1]]
    assert first[0] == first[3]
    assert first[1] == first[4] == first[5]
    assert len(set(first)) == 3
    assert ("adapters", "lora, 2 of them, none in 3 of 6 rows") in read.workload.understood.facts
    shorter = runs.draw(cell(*named, "engine=vllm", "workload.limit=3"))
    assert shorter.adapter.tolist() == [1, 0, 2]
    with pytest.raises(InvalidInput, match=r"columns has an adapter, which is not valid with engine=sglang"):
        runs.draw(cell(*named, "engine=sglang"))
    with pytest.raises(InvalidInput, match=r"adapters=zipf is not valid with workload\.columns\.adapter"):
        runs.draw(cell(*named, "engine=vllm", "adapters=zipf"))


def test_a_log_that_says_adapters_is_told_how_they_are_read(log: str) -> None:
    unnamed = cell("workload=request_log", log, "workload.load=recorded", "engine=vllm")
    assert not runs.draw(unnamed).adapter.any()
    assert any("workload.columns={adapter: lora} reads it" in one for one in unnamed.workload.understood.doubts)
