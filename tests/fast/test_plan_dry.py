"""How many runs `plan --dry` says are to come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from prebleexp.launch import configure
from prebleexp.planning.answer import Answer
from prebleexp.planning.assumed import Assumed
from prebleexp.planning.contender import Contender, question
from prebleexp.planning.together import together
from prebleexp.planning.trials import Sample, Trial


@pytest.mark.parametrize(("searched", "first"), [("gpus", 4), ("rps", 12.0)])
def test_dry_counts_what_a_search_asks_for_if_its_answer_is_where_it_begins(searched: str, first: float) -> None:
    """It was a number of its own, 60 or 5, whatever was searched for."""
    cell = configure.cells(["gpus=2", "rps=12", "slo.ttft_s=0.5", "slo.target=0.9"])[0]
    one = Contender(cell, searched)
    asked: list[Trial] = []
    wanted = question(one, tolerance=0.05, seeds=8, most_seeds=64, requests=None, most_requests=200_000)

    def answered(known: dict[float, float]) -> Answer:
        assumed = Assumed(one)
        asked.clear()

        def samples(batch: Sequence[tuple[str, Trial]]) -> list[Sample]:
            found = []
            for _, trial in batch:
                sample = Sample(known[trial.size], 4000, None) if trial.size in known else assumed.sample(trial)
                if trial.size in known:
                    assumed.know(trial, sample)
                else:
                    asked.append(trial)
                found.append(sample)
            return found

        search = one.search_from(wanted, first)
        return together({"it": search}, samples)["it"]

    assert answered({}).size == pytest.approx(first, rel=0.06)
    if searched == "gpus":
        assert {trial.size for trial in asked} == {1, 2, 3, 4}
        assert sum(trial.size == 1 for trial in asked) == 1, "which its first seed shows not to be enough"
        assert answered({4: 0.5}).size == 6, "the next that is tried"
        assert answered({4: 0.95, 3: 0.95}).size == 3
    else:
        assert len(asked) % 8 == 0, "eight seeds at each load"
        assert (answered({12.0: 0.5}).size or 0) < 12
