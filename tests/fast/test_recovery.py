"""The minute after a loss and the time to recover: by hand, and against the definition in plain Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.recovery import MINUTE_S, WINDOW_S, WORSE, after_loss, recovery_s
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import Figure, figure
from prebleexp.report.measures import DRAWINGS
from prebleexp.report.summary import Row
from prebleexp.report.survivors import findings
from tests.support.sampled import examples

NEVER = float("nan")


def run(ttft_s: dict[int, float], lost_s: tuple[float, ...] = (NEVER, 90.0), usual: float = 1.0) -> Any:
    """A request is due each second for three minutes, and has its first token after a second, but for some."""
    due_s = np.arange(180.0)
    made = np.array([ttft_s.get(i, usual) for i in range(180)])
    return SimpleNamespace(due_s=due_s, ttft_s=made, gpu_lost_s=np.array(lost_s))


SLOW = dict.fromkeys(range(90, 100), 5.0)


def test_the_minute_after_is_of_those_due_in_it_that_have_a_first_token() -> None:
    assert after_loss(run(SLOW)).tolist() == [5.0] * 10 + [1.0] * 50
    assert after_loss(run(SLOW | {95: NEVER})).tolist() == [5.0] * 9 + [1.0] * 50
    assert after_loss(run(SLOW, (120.0, 85.0))).tolist() == [1.0] * 5 + [5.0] * 10 + [1.0] * 45
    assert len(after_loss(run(SLOW, (NEVER, NEVER)))) == 0


@pytest.mark.parametrize(
    ("ttft_s", "expected"),
    [
        ({}, 0.0),
        (SLOW, 18.0),  # of those due from 99 to 108 s one is slow, and the mean is 1.4 s
        (SLOW | {108: NEVER}, 17.0),
        ({105: 3.0}, 0.0),  # the mean is 1.2 s
        ({105: 3.6}, 24.0),  # it is 1.26 s, until 114 s
        (dict.fromkeys(range(90, 180), 2.0), 89.0),  # it is still worse at the last request
        (SLOW | dict.fromkeys(range(50, 60), 4.0), 0.0),  # in ten seconds before, it was 4 s
        (SLOW | dict.fromkeys(range(10, 20), 4.0), 18.0),  # that was too long ago
        ({85: 20.0}, 4.0),  # it was lost, and had its first token when all was over: it tells of after, not of before
    ],
)
def test_it_recovers_when_the_moving_mean_is_for_good_what_it_was(ttft_s: dict[int, float], expected: float) -> None:
    assert recovery_s(run(ttft_s)) == expected


def test_nothing_recovers_from_nothing() -> None:
    assert recovery_s(run(SLOW, (NEVER, NEVER))) is None
    assert recovery_s(run(SLOW, (0.0,))) is None, "nothing came before"
    assert recovery_s(run(SLOW, (200.0,))) is None, "nothing came after"


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1800), st.none() | st.floats(0.01, 30)), max_size=80),
    st.integers(0, 180),
    st.randoms(),
)
def test_it_is_what_the_definition_says(drawn: list[tuple[int, float | None]], lost: int, random: Any) -> None:
    """Requests come in any order, some at one instant, and some have no first token."""
    random.shuffle(drawn)
    requests = [(due / 10, NEVER if ttft is None else ttft) for due, ttft in drawn]
    due_s, ttft_s = np.array(requests).reshape(-1, 2).T
    made: Any = SimpleNamespace(due_s=due_s, ttft_s=ttft_s, gpu_lost_s=np.array([float(lost)]))
    known = [(due, ttft) for due, ttft in requests if ttft == ttft]
    before = [(due, ttft) for due, ttft in known if due >= lost - MINUTE_S and due + ttft <= lost]
    later = sorted(due for due, _ in known if due > lost)

    def mean(at: float, of: list[tuple[float, float]]) -> float:
        window = [ttft for due, ttft in of if at - WINDOW_S < due <= at]
        return sum(window) / len(window)

    if not before or not later:
        assert recovery_s(made) is None
        return
    limit = WORSE * max(mean(due, before) for due, _ in before)
    if any(mean(due, known) == pytest.approx(limit, rel=1e-9) for due in later):
        return  # a tie, which rounding decides
    assert recovery_s(made) == max([due for due in later if mean(due, known) > limit], default=lost) - lost


# ---------------------------------------------------------------- the page
LINES = {"calm": ((0.1, 0.0), (0.1, 1.0)), "rough": ((0.4, 40.0), (0.8, 41.0)), "lost": ((0.1, 0.0), (1.6, 90.0))}
"""p99 after the loss and time to recover, known at once and late"""


def rows(seeds: int = 4) -> list[Row]:
    return [
        {
            **{"part": kind, "variant": kind, "gpus": 8, "rps": 80, "line": line, "seed": seed, "losses": 10},
            **{"after_loss_ttft_p99_s": p99 * (1 + 0.01 * (seed % 2)), "recovery_s": back, "ttft_p99_s": 0.2},
            **{"n_finished": 100, "n_requests": 100, "horizon": "drain", "duration_s": 180},
        }
        for line, of in LINES.items()
        for kind, (p99, back) in zip(("at once", "late"), of, strict=True)
        for seed in range(seeds)
    ]


def drawn_of(given: list[Row]) -> Figure:
    return figure("survival", given, how=DRAWINGS["survival"], drawings=Drawings())


def test_the_page_says_who_takes_it_best_and_who_is_back_soonest() -> None:
    said = drawn_of(rows()).headline
    assert said.startswith("Of 3 routers, calm takes the loss of a GPU best: of the requests due in the minute after, ")
    assert "within 0.1005" in said
    assert "with the last, rough, it is 5.7 times the best" in said, "√(4 · 8); of lost it is √16"
    assert said.endswith("The soonest to be as before is calm, after 0.500 ± 0 s; the last is lost, after 45.0 ± 0 s.")


def test_it_says_so_of_each_kind_of_loss() -> None:
    at_once, late = findings(rows())
    assert (at_once.name, late.claim) == ("loss-1", "late")
    assert "calm takes the loss" in at_once.sentences[0]
    assert "lost cannot be told apart from it; with the last, rough, it is 4.0 times the best" in at_once.sentences[0]
    assert "with the last, lost, it is 16 times the best" in late.sentences[0]
    assert late.numbers["lines"]["rough"]["recovery_s"] == (41.0, 0.0)
    assert [row[1] for row in late.effects.rows] == ["calm", "rough", "lost"]


def test_a_run_without_a_loss_has_nothing_to_say() -> None:
    without = [{**row, "after_loss_ttft_p99_s": None, "recovery_s": None} for row in rows()]
    assert drawn_of(without).headline == "No line has run in all clusters, so there is nothing to rank."
    assert findings(without) == []
