"""Kernels of attention: their equations by hand, their laws, how far they are off what was measured, and the fit."""

from __future__ import annotations

import dataclasses
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.commands.hardware_check import sizes, table_of
from prebleexp.errors import InvalidInput
from prebleexp.hardware import kernels, kernels_fit
from prebleexp.hardware.kernels import DECODE, MIXED, MUCH, PREFILL, Calls, Kernel, decode_s, mixed_s
from prebleexp.hardware.parameters import MEASURED


@cache
def tables() -> dict[tuple[str, str, str], Calls]:
    decodes = kernels.decodes(MEASURED / "attention.csv.gz", sizes())
    return kernels.by_kind(decodes, kernels.mixed(MEASURED / "mixed_attention.csv.gz", sizes()))


def call(**of: float) -> Calls:
    """One call of 32 heads over 8, of 128 elements of 2 bytes."""
    usual = {"heads": 32.0, "kv_heads": 8.0, "token_bytes": 4096.0, "chunk": 0.0, "before": 0.0, "batch": 16.0}
    return Calls(**{name: np.array([value]) for name, value in {**usual, "ctx": 4096.0, "seconds": 1.0, **of}.items()})


def off(kind: str, key: kernels.Key, of: Calls, kernel: Kernel | None = None) -> np.ndarray:
    gpu = sizes().gpus[key[0]]
    made = kernels.predicted(kind, key, of, gpu) if kernel is None else kernels.EQUATIONS[kind](of, gpu, kernel)
    return np.abs(made / of.seconds - 1)


# ---------------------------------------------------------------- by hand
def test_a_call_is_what_one_works_out_by_hand() -> None:
    """16 requests of 4,096 tokens read 268 MB, which a cache of 50 MB has nothing of, at .8 of 3,350 GB/s."""
    gpu, read = sizes().gpus["h100"], 16 * 4096 * 4096
    kernel = Kernel(launch=1e-5, unit=1e-8, token=2e-10, share=0.8, cache_bytes=50e6, cache_gain=1.0)
    reading = np.hypot(read / (0.8 * 3350e9), 2e-10 * 4096)
    assert decode_s(call(), gpu, kernel)[0] == pytest.approx(1e-5 + 1e-8 * 16 * 8 + reading, rel=1e-5)
    warm = decode_s(call(batch=1.0), gpu, kernel)[0]
    assert warm == pytest.approx(1e-5 + 8e-8 + np.hypot(read / 16 / (1.6 * 3350e9), 2e-10 * 4096), rel=1e-3)
    beside = Kernel(launch=1e-5, unit=1e-8, token=2e-8, share=0.8, work=3e-8)
    tiles = 32 * 128 / 64
    work = 3e-8 / 132 * (tiles * (1000 + 64) + 32 * 16 * 4096)
    parts = (work, 2e-8 * 4096, (read + 1128 * 4096) / (0.8 * 3350e9))
    hand = 1e-5 + 1e-8 * (tiles + 32 * 16) + sum(one**2.5 for one in parts) ** (1 / 2.5)
    assert mixed_s(call(chunk=128.0, before=1000.0), gpu, beside)[0] == pytest.approx(hand)


sized = st.floats(1, 1e5)


@given(st.sampled_from(sorted(kernels.shipped())), sized, sized, sized, sized, st.floats(1, 3), st.integers(0, 3))
def test_a_call_takes_longer_for_more_of_anything(
    key: tuple[str, str, str], batch: float, ctx: float, chunk: float, before: float, by: float, which: int
) -> None:
    kind, gpu = key[0], sizes().gpus[key[1]]
    of = {"batch": batch, "ctx": ctx, "chunk": chunk, "before": before}
    grown = {**of, list(of)[which]: by * list(of.values())[which]}
    kernel, equation = kernels.shipped()[key], kernels.EQUATIONS[kind]
    less, more = (equation(call(**one), gpu, kernel)[0] for one in (of, grown))
    assert 0 < less <= more * (1 + 1e-12)
    near = equation(call(**{**of, "ctx": ctx * (1 + 1e-9)}), gpu, kernel)[0]
    assert near == pytest.approx(less, rel=1e-7)


def test_no_kernel_reads_faster_than_memory_but_for_what_its_cache_holds() -> None:
    """Of twice the cache next to nothing is found there."""
    for (kind, name, kv), kernel in kernels.shipped().items():
        gpu = sizes().gpus[name]
        assert kernel.share < 1
        assert kernel.cache_gain >= 0
        assert kernel.cache_bytes < 130e6, (kind, name, kv)  # the largest: 126 MB, of a B200 and an RTX PRO 6000
        for ctx in (2 * kernel.cache_bytes / 4096 + 1, 1e6):
            of = call(batch=1.0, ctx=ctx, chunk=0.0 if kind == DECODE else 16.0)
            assert kernels.EQUATIONS[kind](of, gpu, kernel)[0] > of.bytes[0] / (gpu.hbm_gb_s * 1e9)


# ---------------------------------------------------------------- errors
def test_every_kind_of_call_is_met_within_8_percent_on_every_gpu() -> None:
    """Median; 25 % in nine of ten. Of all decodes, prefills and mixed calls; by GPU and precision of the cache."""
    assert {kind for kind, *_ in tables()} == {DECODE, PREFILL, MIXED}
    assert sum(len(of) for (kind, *_), of in tables().items() if kind == DECODE) == 12_855
    for (kind, gpu, kv), of in tables().items():
        errors = off(kind, (gpu, kv), of)
        print(f"{kind} {gpu} {kv} {len(of)}: {np.median(errors):.1%} {np.quantile(errors, 0.9):.1%}")
        assert np.median(errors) <= 0.08, (kind, gpu, kv)
        assert np.quantile(errors, 0.9) <= 0.25, (kind, gpu, kv)


@pytest.mark.slow
def test_calls_of_a_batch_that_was_left_out_are_met_as_well() -> None:
    """Decodes: each batch size by a fit without any call of it; mixed calls: each number of decodes likewise."""
    found: dict[str, list[np.ndarray]] = {DECODE: [], MIXED: []}
    for (kind, gpu, kv), of in tables().items():
        for batch in np.unique(of.batch) if kind in found else ():
            rest = kernels_fit.fitted(kind, of.take(of.batch != batch), sizes().gpus[gpu])
            found[kind].append(off(kind, (gpu, kv), of.take(of.batch == batch), rest))
    for kind, errors in found.items():
        every = np.concatenate(errors)
        print(f"{kind}: {np.median(every):.1%} {np.quantile(every, 0.9):.1%}")
        assert np.median(every) <= 0.08
        assert np.quantile(every, 0.9) <= 0.25


def test_grouped_queries_are_met_whatever_the_group() -> None:
    """4 to 16 heads share one of KV."""
    found: dict[float, list[np.ndarray]] = {}
    for (kind, gpu, kv), of in tables().items():
        for group in np.unique(of.heads / of.kv_heads) if kind == DECODE else ():
            found.setdefault(group, []).append(off(kind, (gpu, kv), of.take(of.heads / of.kv_heads == group)))
    assert min(found) == 4
    assert max(found) == 16
    for group, errors in found.items():
        every = np.concatenate(errors)
        assert np.median(every) <= 0.08, group
        assert np.quantile(every, 0.9) <= 0.25, group


def test_kernels_that_read_much_take_as_long_as_steps_say() -> None:
    """More than .4 GB in a call, which is more than a step of a closed loop reads in a layer: within 8 % in the median
    and 25 % in nine of ten; 12 % in the median of the worst GPU and precision (FP8 on an H200)."""
    errors = {}
    for (kind, name, kv), of in tables().items():
        if kind == DECODE and sizes().gpus[name].attention:
            much = of.take(of.bytes > MUCH)
            errors[name, kv] = np.abs(much.bytes / sizes().gpus[name].reading(kv)[0] / much.seconds - 1)
    assert set(errors) >= {("a100", "bf16"), ("h100", "bf16"), ("h100", "fp8"), ("h200", "fp8"), ("b200", "bf16")}
    assert np.median(np.concatenate(list(errors.values()))) <= 0.08
    for key, of_key in errors.items():
        assert np.median(of_key) <= 0.12, key
        assert np.quantile(of_key, 0.9) <= 0.25, key


def test_shipped_kernels_are_what_the_fit_gives() -> None:
    """Predictions, since some numbers are weakly known."""
    made = kernels_fit.fitted_to(tables(), sizes().gpus)
    assert set(made) == set(kernels.shipped())
    for (kind, gpu, kv), kernel in made.items():
        of = tables()[kind, gpu, kv]
        again = kernels.EQUATIONS[kind](of, sizes().gpus[gpu], kernel)
        assert kernels.predicted(kind, (gpu, kv), of, sizes().gpus[gpu]) == pytest.approx(again, rel=0.02)


def test_the_fit_finds_the_numbers_that_made_the_data() -> None:
    gpu, true = sizes().gpus["h100"], Kernel(8e-6, 2e-8, 3e-10, 0.75, 40e6, 0.8)
    of = tables()[DECODE, "h100", "bf16"]
    found = kernels_fit.fitted(DECODE, dataclasses.replace(of, seconds=decode_s(of, gpu, true)), gpu)
    assert [found.launch, found.unit, found.share] == pytest.approx([true.launch, true.unit, true.share], rel=0.02)
    assert found.cache_bytes == pytest.approx(true.cache_bytes, rel=0.1)


# ---------------------------------------------------------------- `hardware check`
HEADS = "gpu,phase,batch,ctx,kv_heads,head_dim,kv_dtype,us\n"


def test_the_check_has_rows_of_kernels(tmp_path: Path) -> None:
    """A prefill and what is of a GPU that is not known are left out; the heads of queries need not be said."""
    kernel, gpu = kernels.shipped()[DECODE, "h100", "bf16"], sizes().gpus["h100"]
    one, four = (1e6 * decode_s(call(batch=batch), gpu, kernel)[0] for batch in (16.0, 64.0))
    rows = [f"h100,decode,16,4096,8,128,bfloat16,{1.25 * one}", f"h100,decode,64,4096,8,128,bfloat16,{four}"]
    rows += ["h100,prefill,1,64,8,128,bfloat16,9", "h300,decode,1,64,8,128,bfloat16,9"]
    (tmp_path / "attention.csv").write_text(HEADS + "\n".join(rows) + "\n")
    found = {(row["metric"], row["gpu"]): row for row in table_of(tmp_path, serve=False)}
    assert set(found) == set(product(("decode_attention", "decode_attention_over_400_mb"), ("all", "h100")))
    every, much = found["decode_attention", "all"], found["decode_attention_over_400_mb", "h100"]
    assert (every["n"], every["median_error"]) == (2, pytest.approx(0.1))
    assert (much["n"], much["precision"]) == (1, "bf16")
    (tmp_path / "attention.csv").write_text(HEADS + "h100,decode,0,4096,8,128,bfloat16,5\n")
    with pytest.raises(InvalidInput, match=r"attention\.csv.*batch=0"):
        table_of(tmp_path, serve=False)


def test_the_check_has_rows_of_mixed_calls(tmp_path: Path) -> None:
    """Of heads over two GPUs; a call of no prefill is a decode, one of no decode a prefill."""
    gpu, kernel = sizes().gpus["rtxpro6000"], kernels.shipped()[MIXED, "rtxpro6000", "bf16"]
    of = call(heads=16.0, kv_heads=4.0, token_bytes=2048.0, chunk=256.0, before=512.0, batch=8.0, ctx=1024.0)
    heads = ",".join(kernels.MIXED_COLUMNS) + "\n"
    rows = [f"rtxpro6000,32,8,2,256,512,8,1024,{1e6 * mixed_s(of, gpu, kernel)[0]}"]
    rows += ["rtxpro6000,32,8,2,0,0,8,1024,20", "rtxpro6000,32,8,2,256,512,0,0,30"]
    (tmp_path / "mixed_attention.csv").write_text(heads + "\n".join(rows) + "\n")
    found = {row["metric"]: row for row in table_of(tmp_path, serve=False)}
    assert set(found) == {"decode_attention", "prefill_attention", "mixed_attention"}
    assert found["mixed_attention"]["median_error"] == pytest.approx(0, abs=1e-9)


def test_a_gpu_without_kernels_reads_as_steps_do() -> None:
    gpu = sizes().gpus["b300"]
    assert kernels.predicted(DECODE, ("b300", "bf16"), call(), gpu)[0] == call().bytes[0] / gpu.reading("bf16")[0]
