"""Of which sizes step times were measured, and what of a run is larger."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prebleexp
from prebleexp.__main__ import main
from prebleexp.commands.hardware_check import sizes
from prebleexp.errors import InvalidInput
from prebleexp.hardware.checked import shipped_loops
from prebleexp.hardware.domain import COLUMNS, Domain, beyond, farthest
from prebleexp.hardware.parameters import Support, measured, parameters_for
from prebleexp.report.methods import methods

SMALL = Domain(64, 500_000, 8_192, 9.8765)
INSIDE = {"peak_running": 64, "peak_context_tokens": 500_000, "prompt_tokens_max": 8_192}
OF_MODEL = {
    "gpt-oss-120b": "gpt_oss_120b",
    "llama-3.1-70b": "llama_3_1_70b",
    "llama-3.1-8b": "llama_3_1_8b",
    "qwen3-32b": "qwen3_32b",
    "minimax-m2.5": "minimax_m2_5",
}


def test_what_is_larger_is_said_with_how_far_was_measured() -> None:
    assert str(SMALL) == ("to 64 requests and 500,000 tokens of context at a time, prompts of 8,192, 9.88 requests/s")
    assert str(replace(SMALL, fewest=4)).startswith("from 4 to 64 requests and 500,000 tokens of context at a time")
    assert replace(SMALL, fewest=4).columns() == SMALL.columns() | {"measured_requests_least": 4}
    assert str(Domain()) == ""
    assert beyond((SMALL.columns(), INSIDE)) == {}
    assert beyond((Domain().columns(), dict.fromkeys(INSIDE, 10**9))) == {}
    larger = INSIDE | {"peak_context_tokens": 1_500_000}
    sentence = "a step had 1,500,000 tokens of context (measured to 500,000)"
    assert beyond((SMALL.columns(), larger)) == {"measured_context_tokens": (3.0, sentence)}
    assert farthest([(SMALL.columns(), larger)]) == sentence
    largest = INSIDE | {"peak_context_tokens": 2_000_000, "prompt_tokens_max": 9_000}
    runs = [(SMALL.columns(), one) for one in (INSIDE, larger, largest)]
    assert farthest(runs) == (
        "2 of 3 runs; the farthest: a step had 2,000,000 tokens of context (measured to 500,000); "
        "a prompt had 9,000 tokens (measured to 8,192)"
    )
    assert farthest(runs[:1]) == ""


def test_the_domain_of_every_configuration_is_that_of_its_measurements() -> None:
    loops = shipped_loops(sizes())
    keys = loops.keys(("gpu", "engine", "model", "precision"))
    for gpu, engine, model, precision in measured():
        _, support = parameters_for(gpu, engine, model, precision)
        chosen = [row for row, key in enumerate(keys) if key == (gpu, engine, model, precision)]
        clients, prompt, output = (each[chosen] for each in (loops.clients, loops.prompt, loops.output))
        assert support.domain.requests == clients.max()
        assert support.domain.fewest == clients.min() >= 4
        assert f"from {clients.min():.0f} to {clients.max():.0f} requests" in str(support.domain)
        assert support.domain.context_tokens == pytest.approx(max(clients * (prompt + output / 2)), abs=1)
        assert support.domain.prompt_tokens >= prompt.max()
    unseen = parameters_for("h100", "sglang", "llama-3.1-8b", "bf16")[1]
    assert unseen.level == "unseen model"
    chosen = [row for row, key in enumerate(keys) if key[:2] == ("h100", "sglang")]
    assert unseen.domain.requests == loops.clients[chosen].max()
    assert unseen.domain.fewest == loops.clients[chosen].min() == 16
    assert not parameters_for("a40", "vllm", "llama-3.1-8b", "bf16")[1].domain


def test_a_run_beyond_it_says_so_where_its_numbers_are(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ["gpus=1", "rps=64", "duration_s=10", f"cache_dir={tmp_path}/c", f"reports_dir={tmp_path}/r"]
    assert main(["engine=vllm", *given]) == 0
    printed = capsys.readouterr().out
    assert "from 4 to 64 requests and 501,350 tokens of context at a time" in printed
    assert "beyond what was measured: a step made a token of " in printed
    assert " requests (measured to 64)" in printed
    assert main(["-m", "engine=vllm", "rps=1,64", *given[:1], *given[2:]]) == 0
    assert "prebleexp: beyond what was measured: 1 of 2 runs; the farthest: a step made" in capsys.readouterr().err
    swept = prebleexp.sweep(engine="vllm", gpus=1, rps=[1, 64], duration_s=10)
    rows = swept.frame()
    assert list(rows["peak_running"] > rows["hardware.measured_requests"]) == [False, True]
    said = dict(methods(rows.to_dict("records"))[0].entries)
    assert said["beyond what was measured"].startswith("1 of 2 runs; the farthest: a step made a token of ")


@pytest.mark.parametrize("seed", range(20))
def test_a_run_inside_it_says_nothing(seed: int) -> None:
    """Random configurations that were measured, at loads that the largest benchmark was above."""
    draw = np.random.default_rng([29, seed])
    offered = [one for one in measured() if one[1] in ("vllm", "sglang") and one[2] in OF_MODEL]
    gpu, engine, model, precision = offered[draw.integers(len(offered))]
    given = {
        **{"hardware/gpu": gpu, "hardware/model": OF_MODEL[model], "hardware.precision": precision, "engine": engine},
        **{
            "replicas": int(draw.integers(1, 5)),
            "rps": float(draw.choice([0.5, 1, 2, 3])),
            "duration_s": 8,
            "seed": seed,
        },
    }
    result = _on_the_fewest(given)
    domain = result.cell.hardware.domain
    assert domain
    assert farthest([(domain.columns(), result.metrics)]) == ""
    assert all(result.metrics[metric] for metric, _ in COLUMNS.values()), "there is something to compare"


def _on_the_fewest(given: dict[str, Any]) -> prebleexp.Result:
    """By the fewest GPUs on which the model fits."""
    for count in (1, 2, 4):
        with suppress(InvalidInput):
            return prebleexp.run(**given, **{"hardware.tensor_parallel": count}, cache_dir=None)
    return prebleexp.run(**given, **{"hardware.tensor_parallel": 8}, cache_dir=None)


def test_a_support_without_a_domain_says_none() -> None:
    assert not Support("measured", "my runs", 8, 0.02, 0.05).domain


def test_methods_say_of_a_recording_what_it_had_and_no_more() -> None:
    row = {"workload": "request_log", "workload.load": "recorded", "arrivals": "poisson", "output_length": "two_point"}
    row |= {"slo": "none", "slo.tpot_s": 0.04, "slo.target": 0.95}
    said = dict(methods([row])[0].entries)
    assert said["slo"].endswith("Here: tpot_s=0.04, target=0.95.")
    assert not {"arrivals", "output_length"} & said.keys()
    assert {"arrivals", "output_length"} <= dict(methods([row | {"workload.load": None}])[0].entries).keys()
