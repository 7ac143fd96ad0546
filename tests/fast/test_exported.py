"""`workload export`: what other tools replay has the same times, lengths and shared blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from prebleexp.errors import InvalidInput
from prebleexp.experiment.runs import draw
from prebleexp.launch.configure import job
from prebleexp.sim.types import Workload
from prebleexp.workloads.exported import BLOCK, lines
from tests.support.sampled import examples
from tests.support.sessions import after_those
from tests.support.strategies.conversations import workload_of, workloads


def parsed(workload: Workload) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(workload)]


def shared(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@settings(max_examples=examples(30), deadline=None)
@given(workloads())
def test_hashes_are_equal_where_whole_blocks_are_shared(workload: Workload) -> None:
    big = workload.changed(segment_tokens=workload.segment_tokens * 100, prompt_tokens=workload.prompt_tokens * 100)
    found = [line["hash_ids"] for line in parsed(big)]
    rows = [slice(*big.segment_offsets[i : i + 2]) for i in range(len(big))]
    paths = [
        [
            (s, k)
            for s, many in zip(big.segment_ids[r].tolist(), big.segment_tokens[r].tolist(), strict=True)
            for k in range(many)
        ]
        for r in rows
    ]
    for i in range(1, len(big)):
        assert len(found[i]) == -(-len(paths[i]) // BLOCK)
        common = next(
            (k for k, (a, b) in enumerate(zip(paths[0], paths[i], strict=False)) if a != b),
            min(len(paths[0]), len(paths[i])),
        )
        whole = common // BLOCK if paths[0] != paths[i] else len(found[i])
        assert shared(found[0], found[i]) == whole


def test_a_session_is_as_aiperf_has_it() -> None:
    made = workload_of([[0], [0, 1], [2]], [700, 400, 100], [0.5, 0.0, 1.25], [3, 4, 5], [3, 4, 5], [-1] * 3)
    made = made.changed(arrival_s=np.array([0.5, 0.0, 1.25]), session=np.array([7, 7, -1], np.int32))
    chain = after_those(made, [[], [0], []], delay_s=np.array([0.0, 2.5, 0.0]))
    assert parsed(chain) == [
        {"timestamp": 500, "session_id": "7", "input_length": 700, "output_length": 3, "hash_ids": [0, 1]},
        {"delay": 2500, "session_id": "7", "input_length": 1100, "output_length": 4, "hash_ids": [0, 2, 3]},
        {"timestamp": 1250, "input_length": 100, "output_length": 5, "hash_ids": [4]},
    ]


def test_what_is_written_is_read_again(tmp_path: Path, command: Any) -> None:
    file = tmp_path / "stream.jsonl"
    load = ["workload=instructions", "rps=20", "duration_s=4", "seed=3"]
    code, _, said = command("workload", "export", *load, f"out={file}")
    assert code == 0
    before = draw(job(load).cells[0])
    assert f"{len(before)} requests" in said
    after = draw(job(["workload=mooncake", f"workload.path={file}"]).cells[0])
    assert after.prompt_tokens.tolist() == before.prompt_tokens.tolist()
    assert (
        np.minimum(after.output_tokens, after.max_new_tokens).tolist()
        == np.minimum(before.output_tokens, before.max_new_tokens).tolist()
    )
    np.testing.assert_allclose(np.diff(after.arrival_s), np.diff(before.arrival_s), atol=1e-6)


def test_parquet_has_all_of_it(tmp_path: Path, command: Any) -> None:
    file = tmp_path / "stream.parquet"
    load = ["workload=chats", "rps=3", "duration_s=4"]
    assert command("workload", "export", *load, f"out={file}", "format=parquet")[0] == 0
    before, after = draw(job(load).cells[0]), draw(job(["workload=recorded", f"workload.path={file}"]).cells[0])
    assert after.session.tolist() == before.session.tolist()
    assert after.segment_ids.tolist() == before.segment_ids.tolist()


def test_what_it_has_no_word_for_is_said() -> None:
    three = workload_of([[0], [1], [2]], [9, 9, 9], [0.0] * 3, [1] * 3, [1] * 3, [-1] * 3)
    join = after_those(three.changed(session=np.zeros(3, np.int32)), [[], [], [0, 1]], delay_s=np.zeros(3))
    child = three.changed(session=np.array([0, 1, 1], np.int32), parent_session=np.array([-1, 0, 0], np.int32))
    for stream, what in (
        (join, "several others"),
        (after_those(child, [[], [0], [1]], delay_s=np.zeros(3)), "another session's"),
        (three.changed(after_ends=np.array([0, 1, 1], np.int32)), "max_concurrency"),
        (three.changed(stage=np.array([0, 1, 1], np.int32)), "stages that wait"),
    ):
        with pytest.raises(InvalidInput, match=f"format=mooncake has no word for .*{what}"):
            list(lines(stream))
