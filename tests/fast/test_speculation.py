"""Speculative decoding as users set it: what is accepted, what it costs, what is measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.engines.vllm.engine import VLLM
from prebleexp.engines.vllm.speculative import SpeculativeConfig
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import key
from prebleexp.launch import configure
from prebleexp.sim.types import State
from tests.support.by_hand.one_gpu import serve
from tests.support.by_hand.streams import own, stream
from tests.support.costs.linear_cost import LinearCost
from tests.support.interpreted import printed
from tests.support.recordings.vllm import replay
from tests.support.strategies.engine_streams import random_setting

SMALL = ("gpus=1", "duration_s=6", "rps=4", "hardware/model=llama_3_1_8b")
EAGLE = "engine.speculative_config={method: eagle, num_speculative_tokens: 3, acceptance_rate: 0.7}"


def cell(*overrides: str) -> Cell:
    return configure.cells([*SMALL, *overrides])[0]


def measured(*overrides: str) -> dict[str, Any]:
    return runs.run(cell(*overrides)).metrics


def test_acceptance_is_by_position() -> None:
    of = SpeculativeConfig("eagle", 3, 0.5)
    np.testing.assert_allclose(of.at_least, [0.5, 0.25, 0.125])
    np.testing.assert_allclose(SpeculativeConfig("eagle", 3, [0.8, 0.6, 0.1]).at_least, [0.8, 0.6, 0.1])
    assert SpeculativeConfig().drafts == 0
    assert not SpeculativeConfig("eagle", 3, 1.0).draws
    assert of.draws


LOGGED = (
    "INFO 11-27 20:00:{} [metrics.py:99] SpecDecoding metrics: Mean acceptance length: 2.40, Accepted throughput: 1.00 "
    "tokens/s, Drafted throughput: 2.00 tokens/s, Accepted: 14 tokens, Drafted: {} tokens, Per-position acceptance "
    "rate: {}, Avg Draft acceptance rate: 46.7%\n"
)


def test_acceptance_is_that_of_a_log_of_vllm(tmp_path: Path) -> None:
    """By the drafts of its lines; the key has what they say, not where that is."""
    path = tmp_path / "server.log"
    path.write_text("INFO started\n" + LOGGED.format(10, 30, "0.900, 0.300") + LOGGED.format(20, 10, "0.500, 0.100"))
    of = SpeculativeConfig("eagle", None, str(path))
    assert of == SpeculativeConfig("eagle", 2, of.acceptance_rate)
    np.testing.assert_allclose(of.at_least, [0.8, 0.25])
    with pytest.raises(InvalidInput, match="3 numbers from 0 to 1"):
        SpeculativeConfig("eagle", 3, str(path))
    with path.open("a") as file:
        file.write(LOGGED.format(30, 10, "0.500"))
    with pytest.raises(InvalidInput, match="of 1 and 2 drafts a step"):
        SpeculativeConfig("eagle", None, str(path))
    path.write_text("INFO started\n")
    with pytest.raises(InvalidInput, match="no line with 'SpecDecoding metrics'"):
        SpeculativeConfig("eagle", None, str(path))
    with pytest.raises(InvalidInput, match="No such file"):
        SpeculativeConfig("eagle", None, str(tmp_path / "none.log"))


@pytest.mark.slow
def test_a_step_brings_as_many_tokens_as_acceptance_says() -> None:
    """By the definition of the rates: 1 + Σ of how often so many are accepted."""
    rates = (0.8, 0.5, 0.3)
    made = measured(EAGLE, "engine.speculative_config.acceptance_rate=[0.8, 0.5, 0.3]", "rps=12")
    print({name: made[name] for name in ("acceptance_length", "draft_acceptance", "wasted_tokens")})
    assert made["acceptance_length"] == pytest.approx(1 + sum(rates), rel=0.02)
    assert made["draft_acceptance"] == pytest.approx(sum(rates) / 3, rel=0.03)
    assert 0.1 < made["wasted_tokens"] < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("synchronous", [True, False])
@pytest.mark.parametrize("method", ["eagle", "draft_model"])
def test_tokens_come_in_bursts_and_gaps_are_between_these(method: str, synchronous: bool) -> None:
    """All accepted, k = 3: four tokens a step. TPOT is a quarter of the gap between bursts, as `vllm bench serve` has
    both."""
    words = [EAGLE, f"engine.speculative_config.method={method}", "engine.speculative_config.acceptance_rate=1"]
    words += [
        "engine.speculative_config.draft_cost=0",
        "rps=1",
        "output_length=constant",
        "output_length.lengths=[201]",
    ]
    made = measured(*words, f"engine.async_scheduling={not synchronous}".lower())
    print(method, synchronous, made["tpot_mean_s"], made["itl_mean_s"])
    assert made["acceptance_length"] == 4
    assert made["itl_mean_s"] / made["tpot_mean_s"] == pytest.approx(4, rel=0.02)
    assert made["tpot_mean_s"] < 0.5 * measured("rps=1", *words[4:])["tpot_mean_s"]


@pytest.mark.slow
def test_drafts_that_are_never_accepted_cost_time_and_change_no_answer() -> None:
    plain = measured("engine.async_scheduling=false")
    none = measured("engine.async_scheduling=false", EAGLE, "engine.speculative_config.acceptance_rate=0")
    assert none["acceptance_length"] == 1
    assert none["output_tokens_mean"] == plain["output_tokens_mean"]
    assert none["n_finished"] == plain["n_finished"]
    assert none["tpot_mean_s"] > plain["tpot_mean_s"]
    assert plain["acceptance_length"] is plain["draft_acceptance"] is plain["wasted_tokens"] is None


@pytest.mark.uncompiled
@pytest.mark.parametrize("acceptance", [0.0, 1.0])
def test_drafts_go_as_far_as_the_context_and_no_further(acceptance: float) -> None:
    short = LinearCost(step_s=0.001, token_s=0.0, context_token_s=0.0, kv_tokens=16_000, context_length=100)
    drafts = {"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": acceptance}
    prompts = [own(one, tokens) for one, tokens in enumerate((90, 97, 98, 99))]
    made = serve(stream(prompts, [0.0] * 4, [50] * 4), VLLM(speculative_config=drafts), hardware=short)
    assert made.state.tolist() == [State.FINISHED] * 4
    assert made.output_seen.tolist() == [10, 3, 2, 1]


@pytest.mark.slow
def test_ngram_that_finds_nothing_is_none() -> None:
    """Law: without a draft all is as in an engine without speculation."""
    words = ("engine.async_scheduling=false", "engine.speculative_config.method=ngram")
    words += ("engine.speculative_config.num_speculative_tokens=4", "engine.speculative_config.acceptance_rate=0.5")
    none = measured(*words, "engine.speculative_config.draft_rate=0")
    plain = measured("engine.async_scheduling=false")
    gap = none.pop("itl_mean_s")  # a sum in another order
    assert gap == pytest.approx(plain.pop("itl_mean_s"), rel=1e-12)
    assert none == plain


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 40, 10))
def test_drafts_that_are_never_accepted_and_cost_nothing_change_nothing(seed: int) -> None:
    """Law, where tokens cost nothing and there is room for all: whoever waits for room, waits longer with drafts."""
    for one in range(seed, seed + 10):
        config, stream = random_setting(one)
        config |= {"token_ns": 0, "context_token_ns": 0, "max_num_batched_tokens": 2**20, "max_num_seqs": 256}
        config |= {"num_blocks": 10 * config["num_blocks"] + 10_000, "long_prefill_token_threshold": 0}
        drafts = {"num_speculative_tokens": 3, "spec_method": "draft_model", "max_model_len": 2**20}
        none = stream | {"accepts": np.zeros((len(stream["arrival_ns"]), 1), np.int32)}
        plain, made = replay(config, stream), replay(config | drafts, none)
        for name in ("first_token_ns", "finish_ns", "first_cached_tokens", "output_seen", "preemptions"):
            np.testing.assert_array_equal(made[name], plain[name], f"seed {one}: {name}")


@pytest.mark.slow
def test_routers_serve_requests_with_the_same_acceptance() -> None:
    """A request's acceptance is its own: it does not depend on where it is served, nor when."""
    streams = [runs.run(cell(EAGLE, "gpus=2", f"policy={policy}", "rps=2")) for policy in ("round_robin", "random")]
    lengths = [one.metrics["acceptance_length"] for one in streams]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-3)
    again = runs.run(cell(EAGLE, "gpus=2", "policy=random", "rps=2"))
    assert again.outcome.latency_s.tobytes() == streams[1].outcome.latency_s.tobytes()


SERVED = """
import numpy as np, prebleexp

given = {"gpus": 2, "rps": 4, "duration_s": 2, "horizon": "drain", "workload": "chats", "workload.turns": 3}
given |= {"workload.think_s": 0.3, "workload.first_tokens": 600, "hardware/model": "llama_3_1_8b", "cache_dir": None}
drafts = {"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": 0.7}
for more in ({}, {"engine.speculative_config": drafts}):
    run = prebleexp.run(engine="vllm", cluster="disaggregated", **given, **more)
    outcome, metrics = run.computed.outcome, run.computed.metrics
    assert np.isfinite(outcome.finish_s).all() and outcome.transferred_tokens.sum() > 0
    print(metrics["tpot_mean_s"], metrics["acceptance_length"])
"""


@pytest.mark.slow
def test_gpus_for_outputs_have_drafts_in_a_process_that_compiles_nothing() -> None:
    without, none, tpot, length = printed(SERVED)
    assert none == "None"
    assert 2.2 < float(length) < 2.9
    assert float(tpot) < 0.6 * float(without)


def test_what_speculation_means_to_keys() -> None:
    assert key(cell(EAGLE)) != key(cell())
    assert key(cell(EAGLE, "engine.speculative_config.acceptance_rate=0.6")) != key(cell(EAGLE))
    assert key(cell("engine.speculative_config.draft_rate=0.5")) == key(cell())
    assert "speculative_config" not in cell().identity()["engine"]  # type: ignore[operator]
    assert cell(EAGLE).columns()["engine.speculative_config.method"] == "eagle"
    assert cell(EAGLE, "engine.speculative_config.num_speculative_tokens=5").engine.speculative_config.drafts == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (("engine.speculative_config.method=medusa",), r"speculative_config\.method=medusa is not valid; .* eagle"),
        (("engine.speculative_config.method=eagle",), r"num_speculative_tokens=None is not valid"),
        (
            (EAGLE, "engine.speculative_config.acceptance_rate=null"),
            r"acceptance_rate=None is not valid; .* vLLM logs it",
        ),
        (
            (EAGLE, "engine.speculative_config.acceptance_rate=[.5, .6, .4]"),
            r"acceptance_rate=.* none above the one before",
        ),
        ((EAGLE, "engine.speculative_config.acceptance_rate=[.5, .4]"), r"acceptance_rate=.* must be 3 numbers"),
        (
            (EAGLE, "engine.speculative_config.draft_rate=.5"),
            r"draft_rate=0\.5 is not valid; .* 1 where method is not ngram",
        ),
        ((EAGLE, "engine.speculative_config.method=draft_model"), r"draft_cost=None is not valid; .* cannot be known"),
        ((EAGLE, "engine.speculative_config.method=ngram"), r"async_scheduling=True is not valid; it must be false"),
        (
            (EAGLE, "cluster=migrating"),
            r"speculative_config\.method=eagle is not valid; it must be null where requests are moved",
        ),
        (
            (EAGLE, "cluster=tiered", "cluster.peers.gb_s=36"),
            r"speculative_config\.method=eagle is not valid; it must be null where GPUs lend",
        ),
    ],
)
def test_what_is_not_valid_is_refused(overrides: tuple[str, ...], says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        cell(*overrides)
