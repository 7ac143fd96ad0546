"""What to deploy: rounds of halving by hand, fronts against a definition, files against schemas and lists of flags, and
the whole search against every deployment there is."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.planning.trials import Question, Sample, Trial
from prebleexp.recommending import (
    asked,
    bounds,
    candidates,
    halving,
    not_run,
    recommender,
    space,
    words,
)
from prebleexp.recommending.candidates import Point
from prebleexp.recommending.deployment import files, kubernetes, routers, serving
from prebleexp.recommending.designs import Design, shorter
from prebleexp.recommending.halving import Found, Priced, Trying
from prebleexp.report import evidence, stored
from tests.support.places import ROOT

LOAD = ["rps=60", "slo.ttft_s=0.3", "slo.tpot_s=30ms", "slo.target=0.9"]
MODEL = ["hardware/model=llama_3_1_8b"]
PRICES = "price_per_gpu_hour={h100: 2.5, h200: 3.5}"
QUICK = {"tol": 0.2, "seeds": 3, "most_seeds": 3, "requests": 600}


def wanted(lines: list[str], **given: object) -> asked.Asked:
    values = {"price_per_gpu_hour": {"h100": 2.5, "h200": 3.5}, "most_gpus": 8, "whole": False, **QUICK} | given
    return asked.asked(lines, values)


# ---------------------------------------------------------------- rounds, by hand
class Made:
    """Designs of which it is known from how many replicas on they keep the promise."""

    def __init__(self, enough: Mapping[str, int]) -> None:
        self.enough = enough
        self.tried: list[tuple[str, int]] = []

    def find(self, tried: Mapping[str, Trying]) -> dict[str, Found]:
        return {name: self._run(name, search) for name, search in tried.items()}

    def _run(self, name: str, search: Trying) -> Found:
        asked_for = next(search)
        while True:
            try:
                asked_for = search.send([self._sample(name, one) for one in asked_for])
            except StopIteration as over:
                return over.value  # type: ignore[no-any-return]

    def _sample(self, name: str, trial: Trial) -> Sample:
        self.tried.append((name, int(trial.size)))
        return Sample(min(1.0, 0.9 * trial.size / self.enough[name] + 1e-9), 100, None)


QUESTION = Question(target=0.9, strictest=0.9, seeds=1, most_seeds=1, requests=100)


def test_a_round_orders_designs_by_what_they_cost() -> None:
    made = Made({"small": 9, "large": 4, "poor": 40})
    designs = {
        "small": Priced(1.0, 1, 16, 1),
        "large": Priced(2.0, 1, 16, 1),
        "poor": Priced(1.0, 1, 16, 1),
        "dear": Priced(50.0, 3, 16, 3),
    }
    made.enough = {**made.enough, "dear": 3}
    judged = halving.round_of(designs, lambda name: QUESTION, made.find)
    assert [one.name for one in judged][:2] == ["large", "small"]
    assert [one.found.size for one in judged if one.name in ("large", "small", "poor")] == [4, 9, None]
    assert judged[0].found.part == pytest.approx(4)


def test_whoever_is_too_dear_takes_two_runs_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halving, "AT_ONCE", 1)
    made = Made({"cheap": 2, "worse": 5, "dear": 1})
    designs = {"cheap": Priced(1.0, 1, 16, 1), "worse": Priced(1.1, 1, 16, 1), "dear": Priced(9.0, 1, 16, 1)}
    judged = {one.name: one.found.size for one in halving.round_of(designs, lambda name: QUESTION, made.find)}
    assert judged == {"cheap": 2, "worse": None, "dear": None}
    assert [size for name, size in made.tried if name == "worse"] == [2, 1], (
        "as many as 1.25 times the cheapest buys, and one less, as more may keep less"
    )
    assert [name for name, _ in made.tried if name == "dear"] == []


def test_twins_are_counted_once() -> None:
    same, other = Found(2, 2.0, 0.95), Found(3, 2.8, 0.93)
    judged = [halving.Judged(name, found, 1.0) for name, found in (("a", same), ("b", same), ("c", other))]
    assert [one.name for one in halving.going_on(judged, 1)] == ["a", "b"]
    assert [one.name for one in halving.going_on(judged, 2)] == ["a", "b", "c"]
    assert [one.name for one in halving.going_on(judged, 2, 1)] == ["a", "c"]


def test_a_contest_takes_nothing_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is dropped since a short stream makes somebody of another size, kind or router look cheaper."""
    monkeypatch.setattr(halving, "AT_ONCE", 1)
    made = Made({"small": 2, "large": 2, "larger": 3})
    designs = {"small": Priced(1.0, 1, 16, 1), "large": Priced(4.0, 1, 16, 1), "larger": Priced(4.0, 1, 16, 1)}
    together = halving.round_of(designs, lambda name: QUESTION, made.find)
    assert {one.name: one.found.size for one in together} == {"small": 2, "large": None, "larger": None}
    apart = halving.round_of(designs, lambda name: QUESTION, made.find, contest=lambda name: name[:5])
    assert {one.name: one.found.size for one in apart} == {"small": 2, "large": 2, "larger": None}
    assert [one.name for one in halving.best_of_each(apart, lambda name: name[:5])] == ["small", "large"]


def test_what_is_bought_is_whole_replicas() -> None:
    """A design that would do with a fraction less is no cheaper than one of a lower price."""
    nearly, cheaper = (
        halving.Judged("nearly", Found(4, 3.1, 0.99), 6.0),
        halving.Judged("cheap", Found(2, 2.0, 0.9), 10),
    )
    assert sorted([nearly, cheaper], key=lambda one: one.rank) == [cheaper, nearly]


# ---------------------------------------------------------------- fronts
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=12), st.booleans())
def test_on_a_front_is_whom_nobody_beats(values: list[tuple[int, int]], higher: bool) -> None:
    design = Design({"gpu": "h100", "policy": "lor"}, CELL, 1.0, 64)
    points = [Point(design, price, {"m": (float(value), None)}, keeps=True) for price, value in values]

    def beats(one: Point, other: Point) -> bool:
        a, b = (one.seen["m"][0], other.seen["m"][0]) if higher else (-one.seen["m"][0], -other.seen["m"][0])
        return one.price <= other.price and a >= b and (one.price < other.price or a > b)

    found = candidates.front(points, "m", higher=higher)
    unbeaten = {(one.price, one.seen["m"]) for one in points if not any(beats(other, one) for other in points)}
    assert [(one.price, one.seen["m"]) for one in found] == sorted(unbeaten)


# ---------------------------------------------------------------- the space
CELL = configure.cells([*LOAD, *MODEL, "hardware/gpu=h100", "gpus=1"])[0]


def test_what_does_not_fit_is_left_out_and_said() -> None:
    lines = [*LOAD, "hardware/model=llama_3_1_70b", "policy=lor,e2", "hardware.tensor_parallel=1,4"]
    found = space.space(lines, wanted(lines, whole=True))
    assert {one.at["tensor_parallel"] for one in found.designs} == {4}
    assert len(found.designs) == 2 * 2 * 4, "of each kind both routers with four budgets"
    assert any("does not fit on 1 h100" in one.said for one in found.left_out)
    assert sum(one.designs for one in found.left_out) == 16


def test_a_configuration_is_composed_for_each_engine_and_router_and_not_for_each_design(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A third of the seconds of a search that was in the cache went into hundreds that were all the same."""
    composed: list[list[str]] = []
    whole = configure.cells
    monkeypatch.setattr(configure, "cells", lambda lines: composed.append(lines) or whole(lines))
    lines = [*LOAD, *MODEL, "policy=lor,e2", "hardware.tensor_parallel=1,2"]
    found = space.space(lines, wanted(lines))
    print(f"{len(composed)} configurations for {len(found.designs)} designs")
    assert len(composed) == 2 + 2 * 2 * 4 + 1, "routers, kinds by sizes by budgets, and what a split has"
    assert len(found.designs) > 3 * len(composed)


def test_prompts_have_replicas_of_their_own_in_splits() -> None:
    lines = [*LOAD, *MODEL, "policy=lor", "hardware.tensor_parallel=2", "hardware/gpu=h100"]
    found = space.space([*lines, "engine.max_num_batched_tokens=null", "engine.max_num_seqs=null"], wanted(lines))
    assert [one.at["roles"] for one in found.designs] == ["whole", "split", "split +1P"]
    _, split, more = (one.at_size(4) for one in found.designs)
    sizes = [[(group.role, group.replicas, group.gpus) for group in cell.cluster.groups] for cell in (split, more)]
    assert [role for of in sizes for role, _, _ in of] == ["prefill", "decode"] * 2
    assert sum(count for _, count, _ in sizes[0]) == 4
    assert sizes[1][0][1] == min(3, sizes[0][0][1] + 1)
    assert split.gpus == 8


@pytest.mark.parametrize(
    ("lines", "given_values", "said"),
    [
        (["gpus=4"], {}, "gpus: that is searched; most_gpus says how many GPUs can be had"),
        ([], {"price_per_gpu_hour": None}, "price_per_gpu_hour: what is cheapest depends on it"),
        ([], {"price_per_gpu_hour": 2.0}, "hardware/gpu: which GPUs can be had?"),
        ([], {"most_gpus": {"h100": 4}}, "most_gpus says nothing of h200; it has h100"),
        (["rps=1,2"], {}, "rps: recommend compares values of hardware, engine, policy; of rps it takes one"),
        (["policy=lor,nobody"], {}, "nobody"),
        (["hardware/gpu=h100,h1000"], {"price_per_gpu_hour": 2.0}, "h1000"),
        (["replications=3"], {}, "replications: recommend adds seeds itself"),
        ([], {"most_gpus": 0}, "most_gpus=0 is not valid"),
    ],
)
def test_what_is_not_valid_is_said(lines: list[str], given_values: dict[str, object], said: str) -> None:
    all_lines = [*LOAD[lines[:1] == ["rps=1,2"] :], *MODEL, *lines]
    with pytest.raises(InvalidInput) as refused:
        space.space(all_lines, wanted(all_lines, **given_values))
    assert said in str(refused.value)


def test_bounds_are_below_what_a_replica_can_serve() -> None:
    """A stream that one replica serves within its limits never needs more by the bound."""
    for gpu, each in product(("h100", "h200"), (1, 2)):
        own = [*MODEL, f"hardware/gpu={gpu}", f"hardware.tensor_parallel={each}", f"gpus={each}", "duration_s=20"]
        for rps in (20, 40, 80, 160):
            cell = configure.cells([*LOAD[1:], f"rps={rps}", *own])[0]
            kept = runs.run(cell).metrics["slo_attainment"]
            design = Design({}, cell, 1.0, 1)
            demand = bounds.Demand.of(design.contender)
            work = bounds.work(cell.hardware, demand, bounds.tpot_of(cell))
            if kept >= 0.9:
                assert bounds.replicas(work, demand, 0.9) == 1, (gpu, each, rps)


def test_a_model_too_slow_for_one_request_is_not_run() -> None:
    lines = [*LOAD[:1], "slo.tpot_s=0.2ms", "slo.target=0.9", *MODEL, "policy=lor"]
    with pytest.raises(InvalidInput, match=r"more than the promised 0\.2"):
        space.space(lines, wanted(lines))


def test_rounds_see_the_busiest_windows_of_a_recording(tmp_path: Path) -> None:
    """A quiet one, which one replica serves, told no routers apart."""
    design = Design({}, configure.cells([*_busy(tmp_path), *MODEL, "gpus=1", "hardware/gpu=h100"])[0], 1.0, 8)
    changed = shorter(design.contender, 0.25)
    window = design.with_stream(changed)
    assert not window.contender.is_recorded
    assert changed["duration_s"] == pytest.approx(800 * 0.25, rel=0.01)
    starts = runs.draw(window.cell_of(Trial(1, 0, 1))).arrival_s
    assert len(starts) == pytest.approx(50 * 100 + 100 / 2, rel=0.1), "all of the busy stretch, as it came"
    assert np.median(np.diff(starts)) == pytest.approx(1 / 50)
    assert shorter(design.contender, 1.0) == {}


def _busy(folder: Path) -> list[str]:
    """A recording of 800 s, of which 100 s have fifty requests a second and others a half."""
    at = np.sort(np.concatenate([np.arange(0, 800, 2.0), 500 + np.arange(5000) / 50]))
    path = folder / "log.jsonl"
    rows = ({"timestamp": float(one), "input_length": 2000, "output_length": 100} for one in at)
    path.write_text("\n".join(map(json.dumps, rows)))
    return ["workload=request_log", f"workload.path={path}", "slo.ttft_s=1", "slo.tpot_s=30ms", "slo.target=0.95"]


# ---------------------------------------------------------------- files
FLAGS_OF_SGLANG = {
    *("--policy", "--worker-urls", "--pd-disaggregation", "--prefill", "--decode", "--host", "--port"),
    *("--cache-threshold", "--balance-abs-threshold", "--balance-rel-threshold", "--eviction-interval-secs"),
    *("--max-tree-size", "--max-idle-secs", "--assignment-mode"),
}
"""of sglang-router 0.3.2's launcher (router_args.py), those that are used"""
POLICIES_OF_SGLANG = {"random", "round_robin", "cache_aware", "power_of_two", "manual"}
FLAGS_OF_VLLM = FLAGS_OF_SGLANG - {"--pd-disaggregation", "--max-idle-secs", "--assignment-mode"} | {
    "--vllm-pd-disaggregation"
}
POLICIES_OF_VLLM = {
    *("random", "round_robin", "cache_aware", "kv_aware", "power_of_two", "consistent_hash", "sticky_least_loaded")
}
NAMES = sorted(one.stem for one in (ROOT / "conf" / "policy").glob("*.yaml") if one.stem != "replay")


def cell_of(policy: str, split: bool, engine: str = "vllm") -> object:
    groups = "cluster.groups=[{replicas: 1,role: prefill},{replicas: 2,role: decode}]"
    size = groups if split else "replicas=3"
    own = [f"policy={policy}", size, "hardware/gpu=h100", "hardware.tensor_parallel=2", "hardware.precision=fp8"]
    return configure.cells([*MODEL, *own, f"engine={engine}"])[0]


@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@pytest.mark.parametrize("policy", NAMES)
def test_every_policy_has_files_and_what_is_near_to_it_is_said(policy: str, split: bool) -> None:
    cell = cell_of(policy, split)
    found = files.of(cell, "about")  # type: ignore[arg-type]
    router = routers.router(cell)  # type: ignore[arg-type]
    assert router.sentence in found["README.md"]
    assert router.how is not routers.How.NONE or "simulate it first: policy=dynamo_kv" in router.says
    objects = list(yaml.load_all(found["kubernetes.yaml"], yaml.CSafeLoader))
    servers = [one for one in objects if one["kind"] == "StatefulSet"]
    assert [one["spec"]["replicas"] for one in servers] == ([1, 2] if split else [3])
    for one in servers:
        pod = one["spec"]["template"]
        assert one["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    names = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
    assert all(one["spec"]["serviceName"] in names for one in servers)
    for name, text in found.items():
        if name.endswith((".yaml", ".yml")):
            assert all(isinstance(one, dict) for one in yaml.load_all(text, yaml.CSafeLoader))
    words = shlex.split(found.get("router.sh", "#").replace("\\\n", " "), comments=True)
    flags = {one for one in words if one.startswith("--")}
    if policy.startswith("sglang_") or policy in ("random", "round_robin"):
        assert flags <= FLAGS_OF_SGLANG
        if words[1] == "python3":
            assert words[words.index("--policy") + 1] in POLICIES_OF_SGLANG
    if policy.startswith("vllm_") and words:
        assert flags <= FLAGS_OF_VLLM
        assert words[words.index("--policy") + 1] in POLICIES_OF_VLLM
    if words and "{workers}" in router.command:
        urls = [one for one in words if one.startswith("http://")]
        assert len(urls) == len(set(urls)) == 3


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
def test_manifests_are_valid_by_the_schemas_of_kubernetes(split: bool, engine: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    for policy in ("lor", "sglang_cache_aware", "vllm_cache_aware", "dynamo_kv", "production_stack_session"):
        text = files.of(cell_of(policy, split, engine), "about")["kubernetes.yaml"]  # type: ignore[arg-type]
        for one in yaml.load_all(text, yaml.CSafeLoader):
            validate(one, "1.34", strict=True)


def test_one_replica_has_no_router() -> None:
    """It had llm-d's endpoint picker, for nothing to pick from."""
    for policy in ("llmd", "vllm_cache_aware", "dynamo_kv"):
        cell = configure.cells([*MODEL, "hardware/gpu=h100", "gpus=1", f"policy={policy}"])[0]
        written = files.of(cell, "about")
        assert {*written} == {"serve.sh", "kubernetes.yaml", "README.md"}
        assert "There is one replica, so there is nothing to route." in written["README.md"]
        assert {one["kind"] for one in yaml.load_all(written["kubernetes.yaml"], yaml.CSafeLoader)} == {
            "Service",
            "StatefulSet",
        }


def test_engines_tell_a_router_their_tokens_that_asks_for_them() -> None:
    """Run with vLLM 0.32: without the flag vllm-router 0.1.17 is answered 403, and sends by load alone."""
    for policy, asks in (("vllm_cache_aware", True), ("vllm_power_of_two", False), ("sglang_cache_aware", False)):
        cell = configure.cells([*MODEL, "hardware/gpu=h100", "gpus=2", f"policy={policy}"])[0]
        assert ("--enable-scale-out" in serving.server(cell).command) is asks
        assert ("--enable-scale-out" in routers.router(cell).sentence) is asks


def test_engines_are_started_as_they_were_simulated() -> None:
    own = ["hardware/gpu=h100", "hardware.tensor_parallel=4", "hardware.precision=fp8", "gpus=4"]
    budget = ["engine.max_num_batched_tokens=2048", "engine.max_num_seqs=128", "engine.enable_prefix_caching=false"]
    cell = configure.cells([*MODEL, *own, *budget])[0]
    said = " ".join(serving.server(cell).command)
    for part in (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --port 8000",
        "--tensor-parallel-size 4",
        "--max-num-batched-tokens 2048",
        "--max-num-seqs 128",
        "--no-enable-prefix-caching",
        "--quantization fp8",
        "--kv-cache-dtype fp8",
        "--gpu-memory-utilization 0.9",
    ):
        assert part in said
    sglang = ["engine=sglang", "engine.chunked_prefill_size=4096", "engine.max_running_requests=64"]
    said = " ".join(serving.server(configure.cells([*MODEL, *own, *sglang])[0], "prefill").command)
    for part in (
        "--tp-size 4",
        "--chunked-prefill-size 4096",
        "--max-running-requests 64",
        "--disaggregation-mode prefill",
    ):
        assert part in said
    with pytest.raises(InvalidInput, match="engine=preble is not deployed"):
        serving.server(configure.cells([*MODEL, "engine=preble", "hardware/gpu=h100"])[0])
    with pytest.raises(InvalidInput, match="take hardware=composed"):
        serving.server(configure.cells(["hardware=a6000_mistral_7b"])[0])


def test_a_gpu_that_cannot_keep_kv_in_fp8_is_not_asked_to_and_that_is_said() -> None:
    """vLLM's Triton kernels refuse FP8 below compute capability 8.9."""
    model = ["hardware/model=gpt_oss_120b", "gpus=1"]
    usual, h100 = (configure.cells([*model, f"hardware/gpu={gpu}"])[0] for gpu in ("a100", "h100"))
    assert stored.formats(usual.hardware).endswith("KV cache in BF16"), "nor is it simulated so, unless one says"
    a100 = configure.cells([*model, "hardware/gpu=a100", "hardware.kv_precision=fp8"])[0]
    assert "--kv-cache-dtype" in serving.server(h100).command
    assert "--kv-cache-dtype" not in serving.server(a100).command
    assert stored.formats(h100.hardware) == "weights in BF16, their experts in FP4; KV cache in FP8"
    assert "KV cache in FP8." in files.of(h100, "")["README.md"]
    assert stored.refused(h100.hardware) == ""
    said = files.of(a100, "")["README.md"]
    assert "- KV cache in FP8 was simulated on A100 (174,930 tokens)" in said
    assert "87,465 tokens fit in BF16" in said
    assert [evidence.word(one) for one in (a100, h100)] == ["theory", "measured"]
    groups = "cluster.groups=[{replicas: 1, role: prefill}, {replicas: 1, role: decode}]"
    split = configure.cells([model[0], "hardware/gpu=h100", groups])[0]
    assert evidence.word(split) == "unsplit", "its steps were measured, and no split"


def test_what_was_not_run_for_one_reason_shares_a_line() -> None:
    lines = [LOAD[0], "slo.tpot_s=50ms", "slo.target=0.9", "hardware/model=gpt_oss_120b,llama_3_1_70b", "policy=lor"]
    found = space.space(lines, wanted(lines, price_per_gpu_hour={"a100": 1.6, "l40s": 0.9}))
    fit, few, slow = not_run.lines(found.left_out)
    assert fit == (
        "16 designs were not run, as the weights do not fit: gpt-oss-120b in bf16 with experts in fp4 on 1 L40S; "
        "llama-3.1-70b in bf16 on 1 A100, 1 L40S and 2 L40S; on some of "
        "them hardware.precision=fp8 or int4 fits, which is tried if you name it"
    )
    assert few.startswith(
        "20 designs were not run, as they take more GPUs than can be had: gpt-oss-120b in bf16 with experts in fp4 on 4"
    )
    assert slow == (
        "4 designs were not run, as one request alone takes more than the promised 50 ms for a token: llama-3.1-70b in "
        "bf16 on 4 L40S (58.8 ms)"
    )
    assert found.models == ["gpt_oss_120b", "llama_3_1_70b"]


def test_a_format_that_a_gpu_does_not_have_is_said_once() -> None:
    lines = [LOAD[0], "slo.tpot_s=50ms", "hardware/model=llama_3_1_70b", "policy=lor", "hardware.precision=fp8"]
    of = wanted(lines, whole=True, price_per_gpu_hour={"a100": 1.6, "h100": 2.5})
    found = space.space([*lines, "hardware.tensor_parallel=2,4"], of)
    said = [one for one in not_run.lines(found.left_out) if "a100" in one]
    assert said == [
        "8 designs were not run, as hardware.precision=fp8 is not valid; it must be one of bf16, int4 on a100: "
        "llama_3_1_70b on 2 A100 and 4 A100"
    ]


def test_each_model_has_an_answer_and_one_that_is_dear_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """None stands in for another: a model is not left out since another is cheaper."""
    lines = [LOAD[0], "slo.tpot_s=50ms", "slo.target=0.9", "hardware/model=llama_3_1_8b,llama_3_1_70b", "policy=lor"]
    of = wanted(lines, whole=True)
    made = recommender.Recommender(recommender.settings_of(lines), space.space(lines, of), of)
    designs = dict(enumerate(made.space.designs))
    monkeypatch.setattr(recommender, "together", lambda tried, _: {i: Found(1, 1.0, 0.95) for i in tried})
    known = {i: Priced(one.price, 1, one.most, 1) for i, one in designs.items()}
    judged = made._round(1, designs, known, lambda i: designs[i].gpu, 1.0, 1)
    best = {designs[one.name].model: one.found.size for one in judged[::-1]}
    assert best == {"llama_3_1_8b": 1, "llama_3_1_70b": 1}, "though those of one model cost less"
    last = {designs[one.name].gpu for one in made._for_last(judged)}
    assert last == set(product(("llama_3_1_8b", "llama_3_1_70b"), ("h100", "h200"))), "and each kind of GPU"


def test_a_kind_of_gpu_that_is_not_shown_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*LOAD, *MODEL, "policy=lor", "hardware.tensor_parallel=1", "engine.max_num_seqs=null"]
    of = wanted(lines, whole=True)
    made = recommender.Recommender(recommender.settings_of(lines), space.space(lines, of), of)
    monkeypatch.setattr(words, "shown", lambda _: [])
    assert words.other_kinds(made) == [
        f"Nothing of {kind} that was tried keeps the promise." for kind in ("H100", "H200")
    ]


def test_all_models_and_gpus_have_names_in_the_world() -> None:
    models = [
        yaml.load(one.read_text(), yaml.CSafeLoader)["name"] for one in (ROOT / "conf/hardware/model").glob("*.yaml")
    ]
    assert set(models) == set(serving.HUB)
    kinds = [
        yaml.load(one.read_text(), yaml.CSafeLoader)["name"] for one in (ROOT / "conf/hardware/gpu").glob("*.yaml")
    ]
    assert set(kinds) == set(kubernetes.PRODUCTS)


# ---------------------------------------------------------------- against every deployment there is
@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "split too"])
def test_the_best_is_within_3_percent_of_an_exhaustive_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    policies = "lor,e2,round_robin" if whole else "lor"
    budgets = ["engine.max_num_batched_tokens=null", "engine.max_num_seqs=null,32"]
    lines = ["rps=160", *LOAD[1:], *MODEL, f"policy={policies}", "hardware.tensor_parallel=1,2", *budgets]
    of = wanted(lines, whole=whole)
    made = recommender.recommend([*lines, "report=none"], of)
    prices = []
    for design in made.space.designs:
        for replicas in range(design.fewest, design.most + 1):
            cell = design.at_size(replicas)
            cells = [replace(cell, seed=seed, duration_s=600 / 160) for seed in range(3)]
            if np.mean([runs.run(one).metrics["slo_attainment"] for one in cells]) >= 0.9:
                prices.append(replicas * design.price)
                break
    best = made.candidates[0]
    found = min((one.answer.likely or 0) * one.design.price for one in made.candidates)
    print(
        f"of {len(made.space.designs)} designs, best {found} an hour; exhaustive {min(prices)}; {len(made.found)} runs"
    )
    assert found <= 1.03 * min(prices)
    assert best.ends[0] <= found


ROUTERS = ("kubernetes_service", "random", "round_robin", "lor")


@pytest.mark.slow
@pytest.mark.parametrize("recorded", [False, True], ids=["drawn", "recorded"])
def test_more_choice_is_never_dearer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recorded: bool) -> None:
    """Of more kinds of GPU, sizes and routers the answer is at most the cheapest of those over each; what streams leave
    open is the same, as their seeds are."""
    monkeypatch.chdir(tmp_path)
    load = _busy(tmp_path) if recorded else ["rps=100", *LOAD[1:]]
    lines = [*load, *MODEL, "engine.max_num_seqs=null", "report=none"]
    choices = [
        ([f"hardware/gpu={kind}", f"hardware.tensor_parallel={size}", f"policy={policy}"])
        for kind, size, policy in product(("h100", "h200"), (1, 2), ROUTERS)
    ]
    of = wanted(lines, whole=True, most_gpus=24, requests=None if recorded else 600)
    each = []
    for choice in choices:
        try:
            each.append(recommender.recommend([*lines, *choice], of).candidates[0].price)
        except InvalidInput:
            each.append(np.inf)
    every = ["hardware/gpu=h100,h200", "hardware.tensor_parallel=1,2", f"policy={','.join(ROUTERS)}"]
    found = recommender.recommend([*lines, *every], of).candidates[0]
    print(f"{found.price} of {min(each)}, {sorted(each)}")
    assert found.price <= min(each)


# ---------------------------------------------------------------- the command
COMMAND = [
    *("recommend", *LOAD, *MODEL, PRICES, "most_gpus=8", "policy=lor,llmd", "hardware.tensor_parallel=1,2"),
    *("requests=600", "seeds=3", "most_seeds=3", "tol=0.2", "engine.max_num_seqs=null"),
]


@pytest.mark.slow
def test_the_command_writes_what_to_deploy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*COMMAND, "--dry"]) == 0
    assert "how long that takes is not known before the first run" in capsys.readouterr().err
    assert main(COMMAND) == 0
    out, err = capsys.readouterr()
    assert "evidence" in out.splitlines()[0]
    assert max(map(len, out.splitlines()[:4])) <= 80
    assert "router" in out.splitlines()[0]
    assert " is this router: " in out
    assert "t +20 % (72.0 requests/s) it " in out
    assert " is lost, " in out
    assert out.splitlines()[1].split()[0] == "1", "the first needs no star"
    assert "prebleexp: The first keeps weights in BF16; KV cache in BF16." in err
    assert "prebleexp: round 1 of 3: " in err
    assert out.splitlines()[-1].startswith(
        "To keep 90 % of requests within ttft 0.3 s and tpot 0.03 s, 60 requests/s take"
    )
    (folder,) = (tmp_path / "reports").glob("recommend-*")
    deployed = sorted((folder / "deployments").iterdir())
    assert len(deployed) >= 3
    for one in deployed:
        assert {"README.md", "kubernetes.yaml"} <= {file.name for file in one.iterdir()}
        assert any(file.name.startswith("serve") for file in one.iterdir())
    page = (folder / "index.html").read_text(encoding="utf-8")
    for said in ("What to deploy", "Price against what it buys", "p95 time to first token", deployed[0].name):
        assert said in page, said
    assert main([*COMMAND, "--dry"]) == 0
    assert "all that this recommendation needs is in the cache" in capsys.readouterr().err
    assert main([*COMMAND, "output=json"]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert rows[0]["alike"]
    assert rows == sorted(rows, key=lambda row: row["price_per_hour"])
    assert ", all from the cache" in err
    assert err.splitlines()[-1].startswith("To keep 90 % of requests"), "beside what programs read"
    assert main([*COMMAND, "slo.ttft_s=0.0001"]) == 2
    assert "nothing that can be had keeps the promise" in capsys.readouterr().err


@pytest.mark.slow
def test_what_a_log_was_taken_for_stands_at_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That two models were taken for one stood on the page alone."""
    monkeypatch.chdir(tmp_path)
    rows = ({"ts": i, "prompt_tokens": 300, "completion_tokens": 20, "model": "ab"[i % 2]} for i in range(60))
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    own = [
        one for one in COMMAND if not one.startswith(("rps=", "requests=", "seeds=", "most_seeds=", "tol=", "workload"))
    ]
    assert main([*own, "workload=request_log", "workload.path=log.jsonl"]) == 0
    err = capsys.readouterr().err
    assert "prebleexp: log.jsonl: 60 requests in 59 s" in err
    assert "model has 2 models (a 30, b 30), and all requests are taken for those of one" in err
    assert err.count("taken for those of one") == 1, "among the caveats, and not once more"


@pytest.mark.slow
def test_what_survives_a_loss_and_what_other_step_times_take_is_told_as_by_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer of one GPU had neither N + 1 nor the range, and rested on step times that may be off by 41 %."""
    monkeypatch.chdir(tmp_path)
    at = np.sort(np.concatenate([np.arange(0, 600, 2.0), 300 + np.arange(240) / 4]))
    rows = ({"ts": float(one), "prompt_tokens": 1500, "completion_tokens": 60} for one in at)
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    asked = [
        *("workload=request_log", "workload.path=log.jsonl", "hardware/gpu=a100", "hardware/model=llama_3_1_8b"),
        *("slo.ttft_s=1", "slo.tpot_s=40ms", "slo.target=0.9", "policy=lor,random", "hardware.tensor_parallel=1"),
    ]
    assert main(["plan", *asked, "price_per_gpu_hour={a100: 1.4}"]) == 0
    plan = capsys.readouterr().out
    fewest = ["engine.max_num_seqs=null", "engine.max_num_batched_tokens=null", "most_gpus=8"]
    assert main(["recommend", *asked, "price_per_gpu_hour={a100: 1.4}", *fewest]) == 0
    out = capsys.readouterr().out
    (range_,) = re.findall(r"\S.* A100 if steps are 41 % slower or faster than the model says", plan)
    assert f"{range_[0].lower()}{range_[1:]}" in out
    (kept,) = re.findall(r"the promise is kept in that minute, too, with [^.]*\.[^)]*\)", plan)
    assert kept in out
    assert re.findall(r"To survive such a loss, [^;]*", plan) == re.findall(r"To survive such a loss, [^;]*", out)
    (grown,) = re.findall(r"At \+20 % .*", plan)
    assert grown in out
