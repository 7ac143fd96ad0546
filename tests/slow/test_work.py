"""How much the kernels do, in lines that they execute as plain Python: what compiled code takes grows with it.

`prebleexp bench` measures how long that takes. Numbers are printed (-s).
"""

from __future__ import annotations

import pytest

from prebleexp.bench import decisions
from tests.support.counted import of_runs

pytestmark = pytest.mark.slow
ALL = "sim engines hardware policies"
SHORT = "output_length=constant output_length.lengths=[10]"
SERVED = f"hardware=a6000_mistral_7b engine=sglang_2024 horizon=drain {SHORT}"


def test_a_decision_takes_no_more_than_linearly_in_gpus() -> None:
    """Of every router, on four times as many GPUs; half more is for what it does only where several are busy."""
    names = decisions.routers()
    sizes = [f"gpus={gpus} rps={8 * gpus} duration_s={4 / gpus}" for gpus in (8, 32)]
    found = of_runs("policies", *(f"{SERVED} policy={name} {size}" for name in names for size in sizes))
    rows = list(zip(names, found[::2], found[1::2], strict=True))
    for name, few, many in rows:
        print(f"{name}: {few:.0f} lines a decision on 8 GPUs, {many:.0f} on 32")
    assert [name for name, few, many in rows if many > 6 * few] == []


def test_a_decision_of_e2_takes_the_same_however_many_requests_there_were() -> None:
    few, many = of_runs("policies", *(f"{SERVED} policy=e2 gpus=8 rps=32 duration_s={s}" for s in (1, 8)))
    print(f"{few:.0f} lines a decision of 32, {many:.0f} of 256")
    assert many < 1.25 * few


def test_a_decision_of_e2_takes_the_same_where_long_requests_end_after_many_short_ones() -> None:
    """What those used later is a long list, in which a place is found at once."""
    mixed = "output_length=discrete output_length.lengths=[1,3000] output_length.probabilities=[0.9,0.1]"
    served = f"hardware=a6000_mistral_7b engine=sglang_2024 horizon=drain {mixed} policy=e2 gpus=1 rps=100"
    few, many = of_runs("policies", *(f"{served} duration_s={s}" for s in (3, 9)))
    print(f"{few:.0f} lines a decision of 300, {many:.0f} of 900")
    assert many < 1.15 * few


SMALL = "replicas=2 rps=16 duration_s=2 output_length=constant"
OURS = f"{SMALL} hardware=a6000_mistral_7b horizon=drain policy=lor"
MOST = {
    f"{OURS} engine=preble": 2_600,
    f"{OURS} engine=vllm": 2_100,
    f"{OURS} engine=sglang": 1_800,
    f"{OURS} engine=sglang_2024": 1_600,
    f"{OURS} engine=released": 1_300,
    f"{SMALL} engine=splitwise": 1_400,
    f"{SMALL} engine=dynamo_replay engine.prefill_workers=1": 16_000,
}
"""lines for a request with 30 tokens of output, an eighth more than today"""


def test_a_request_takes_no_more_than_before() -> None:
    found = of_runs(ALL, *(f"{engine} output_length.lengths=[30]" for engine in MOST))
    for engine, lines in zip(MOST, found, strict=True):
        print(f"{engine}: {lines:,.0f} lines a request")
    assert [engine for engine, lines in zip(MOST, found, strict=True) if lines > MOST[engine]] == []


def test_ten_times_the_output_takes_far_fewer_than_ten_times_the_lines() -> None:
    """Steps in which nothing else happens are not taken one by one, or take few lines; one engine looks at each."""
    engines = ("preble", "sglang_2024", "released", "vllm", "sglang")
    sizes = [f"output_length.lengths=[{tokens}]" for tokens in (30, 300)]
    found = of_runs(ALL, *(f"{OURS} engine={engine} {size}" for engine in engines for size in sizes))
    ratios = dict(zip(engines, (many / few for few, many in zip(found[::2], found[1::2], strict=True)), strict=True))
    print({engine: round(ratio, 2) for engine, ratio in ratios.items()})
    assert all(ratio < (4 if engine == "sglang" else 2) for engine, ratio in ratios.items())


GROUPED = "hardware=composed engine=vllm policy=lor gpus=2 rps=32 duration_s=4 horizon=drain"


def test_groups_of_layers_take_hardly_more_than_one_table() -> None:
    """Of the default model, which has two: a request is looked at in its phase alone, and found there at once."""
    ways = ("true", "null")
    one, groups = of_runs(ALL, *(f"{GROUPED} engine.disable_hybrid_kv_cache_manager={way}" for way in ways))
    print(f"{groups:,.0f} lines a request in groups, {one:,.0f} of one table")
    assert groups < 1.34 * one


SCARCE = "hardware=a6000_mistral_7b hardware.kv_tokens=12000 policy=round_robin gpus=2 rps=64 horizon=drain"


def test_a_request_takes_the_same_however_many_wait() -> None:
    """KV for a few of those that come."""
    engines = ("preble", "vllm", "sglang", "sglang engine.schedule_policy=fcfs")
    found = of_runs(ALL, *(f"{SCARCE} engine={engine} duration_s={s}" for engine in engines for s in (0.5, 1.5)))
    rows = list(zip(engines, found[::2], found[1::2], strict=True))
    for engine, few, many in rows:
        print(f"{engine}: {few:,.0f} lines a request of 32, {many:,.0f} of 96")
    assert [engine for engine, few, many in rows if many > 1.6 * few] == []


def test_waiting_takes_the_same_however_many_wait() -> None:
    """In order of arrival a queue is a list; by priority a heap."""
    ways = ("fcfs", "priority")
    sizes = [f"{SCARCE} engine=vllm engine.scheduling_policy={way} duration_s={s}" for way in ways for s in (0.5, 4)]
    found = of_runs("engines/vllm/queue.py sim/skew_heap.py", *sizes)
    for way, few, many in zip(ways, found[::2], found[1::2], strict=True):
        print(f"{way}: {few:.0f} lines a request of 32, {many:.0f} of 256")
    assert found[1] < 1.02 * found[0]


POOLED = "hardware=composed hardware/model=llama_3_1_8b horizon=drain policy=lor gpus=8 rps=32 duration_s=0.5"
PROTOCOLS = {
    "vllm": ("protocol=pull", "protocol=push_at_end"),
    "sglang": tuple(f"protocol=reserve_first cluster.link.send={when}" for when in ("end", "chunks", "layers")),
}


def test_pools_take_hardly_more_than_gpus_that_do_all() -> None:
    """Twice as many requests are routed and served, and between the two all KV goes over links."""
    for engine, protocols in PROTOCOLS.items():
        ways = ["", *(f"cluster=disaggregated cluster.{protocol}" for protocol in protocols)]
        alone, *split = of_runs(ALL, *(f"{POOLED} engine={engine} {way}" for way in ways))
        for way, lines in zip(protocols, split, strict=True):
            print(f"{engine}, {way}: {lines / alone:.2f} times {alone:,.0f} lines a request")
        assert max(split) < 1.25 * alone
