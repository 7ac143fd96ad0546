"""What a stream looks like: numbers of the specification's table, and of streams whose numbers are known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.described import describe, dispersion, gamma_shape, reuse, turn_gaps
from prebleexp.launch import configure
from prebleexp.report.stream import picture
from prebleexp.sim.types import Workload
from prebleexp.workloads.mooncake import BLOCK, Mooncake
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.sessions import Sessions
from tests.support.places import ROOT

CONVERSATION = ROOT.parent / "shared" / "data" / "conversation_trace.jsonl.gz"
OUTPUT = OutputLength((1,), (1.0,))


def stream(*prompts: list[tuple[int, int]], session: list[int] | None = None) -> Workload:
    """Of segments (id, tokens), one a second."""
    n, flat = len(prompts), [one for prompt in prompts for one in prompt]
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in prompts])))
    ids, tokens = (np.array(column, np.int32) for column in zip(*flat, strict=True))
    total = np.add.reduceat(tokens, offsets[:-1])
    ones = np.ones(n, np.int32)
    given = None if session is None else np.array(session, np.int32)
    return Workload(np.arange(n) * 1.0, total, ones, ones, -ones, offsets, ids, tokens, session=given)


@pytest.mark.slow
@pytest.mark.skipif(not CONVERSATION.exists(), reason="the conversation trace is not there")
def test_mooncakes_conversations() -> None:
    workload = Mooncake(str(CONVERSATION), load="recorded").draw(rps=1, duration_s=1, seed=0, output_length=OUTPUT)
    found = describe(workload, BLOCK)
    assert (found.requests, found.sessions, found.several) == (12_031, 8_496, 1_925)
    assert [round(found.dispersion[window], 1) for window in (1, 10, 60)] == [7.9, 2.1, 2.9]
    assert (found.rate, found.gap_cv) == pytest.approx((3.40, 3.03), abs=0.005)
    assert math.isnan(found.gamma_shape), "nine gaps of ten are 0"
    assert (*found.input.at, found.input.mean) == pytest.approx((901, 6_909, 27_367, 85_400, 12_035), abs=0.5)
    assert (*found.output.at, found.output.mean) == pytest.approx((10, 350, 597, 1_118, 343), abs=0.51)
    assert found.unlimited == pytest.approx(0.374, abs=5e-4)
    assert [round(share, 3) for share in found.reuse.values()] == [0.054, 0.139, 0.291, 0.366]
    assert found.turns.at[2:] == (2, 6)
    assert found.gap.at[:3] == pytest.approx((32, 132, 494), abs=0.5)


def test_counts_of_a_poisson_process_vary_as_their_mean_and_equal_gaps_do_not() -> None:
    rng = np.random.default_rng(0)
    poisson = np.cumsum(rng.exponential(0.01, 400_000))
    assert dispersion(poisson, 1.0) == pytest.approx(1, abs=0.1)
    assert dispersion(np.arange(1000) / 10, 1.0) == 0
    assert math.isnan(dispersion(np.arange(5) / 10, 1.0)), "no window is whole"


@pytest.mark.parametrize("shape", [0.2, 0.86, 1.0, 3.0])
def test_the_shape_of_gamma_gaps_is_found(shape: float) -> None:
    gaps = np.random.default_rng(1).gamma(shape, 2.0, 200_000)
    assert gamma_shape(gaps) == pytest.approx(shape, rel=0.03)
    assert math.isnan(gamma_shape(np.append(gaps, 0.0)))
    assert math.isnan(gamma_shape(np.ones(3)))


def test_a_cache_finds_leading_segments_and_forgets_the_oldest() -> None:
    a, b, c, d = [(0, 100), (1, 50)], [(0, 100), (2, 50)], [(3, 150)], [(0, 100), (1, 50)]
    workload = stream(a, b, c, d)
    for tokens, found in ((math.inf, 250), (350, 250), (349, 200), (250, 200), (249, 100), (0, 0)):
        assert reuse(workload, tokens) == pytest.approx(found / 600), tokens
    for tokens, found in ((448, 250), (447, 200), (320, 200), (319, 100)):  # 128 + 64, 64 and 192
        assert reuse(workload, tokens, block_tokens=64) == pytest.approx(found / 600), tokens


def test_a_cache_has_what_was_generated_too() -> None:
    """A turn of 160 begins with the prompt of 100 and the answer of 50 before it: 150 of 260 are found, and 100 where
    there is no room for both."""
    made = Sessions()
    made.accumulate([(0.0, 100, 50), (1.0, 10, 5)])
    workload = made.workload()
    for tokens, found in ((math.inf, 150), (150, 150), (149, 100), (99, 0)):
        assert reuse(workload, tokens) == pytest.approx(found / 260), tokens
    assert reuse(workload, 191, block_tokens=64) == pytest.approx(100 / 260), "128 and 64"


def test_gaps_are_between_turns_of_a_session() -> None:
    alone = [[(i, 5)] for i in range(5)]
    workload = stream(*alone, session=[0, 1, -1, 0, 1])
    assert turn_gaps(workload).tolist() == [3, 3]
    found = describe(workload)
    assert (found.sessions, found.several, found.turns.mean) == (2, 2, 2)


def test_the_command_prints_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["workload", "describe", "rps=20", "duration_s=20", "out=it.svg"]) == 0
    out = capsys.readouterr().out
    assert "requests" in out
    assert [line.split()[:2] for line in out.splitlines()].count(["quantiles", "p5"]) == 1
    assert (tmp_path / "it.svg").read_text().startswith("<svg ")
    assert main(["workload", "describe", "rps=20", "duration_s=20", "output=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["requests"] == 400
    assert found["gap"]["mean"] is None
    assert main(["workload", "describe", "out=it.doc", "rps=1"]) == 2
    assert "unknown kind of file '.doc'; valid: .pdf, .png, .svg" in capsys.readouterr().err


@pytest.mark.slow
def test_the_same_stream_gives_the_same_picture() -> None:
    workload = stream(*[[(i % 3, 5), (3 + i, 2)] for i in range(30)])
    found = describe(workload)
    assert picture(workload, found, "a < b") == picture(workload, found, "a < b")
    assert "a &lt; b" in picture(workload, found, "a < b")


# ---------------------------------------------------------------- load that grows with the cluster
def test_each_gpu_may_have_its_share_of_the_load() -> None:
    (cell,) = configure.cells(["gpus=6", "rps_per_gpu=2.5"])
    assert cell == configure.cells(["gpus=6", "rps=15"])[0]


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_share_that_is_none_is_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus=2", f"rps_per_gpu={value}"]) == 2
    says = f"rps_per_gpu={value} is not valid; it must be null or a finite number > 0"
    assert says in capsys.readouterr().err


def test_a_sweep_over_shares_shows_rates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["-m", "gpus=1,2", "rps_per_gpu=1,2", "duration_s=2", "report=none", "output=csv"]) == 0
    rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    at = rows[0].index("gpus"), rows[0].index("rps")
    assert [tuple(float(row[column]) for column in at) for row in rows[1:]] == [(1, 1), (1, 2), (2, 2), (2, 4)]
