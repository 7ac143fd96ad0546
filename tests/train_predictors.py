"""Make prebleexp/evaluated anew, and check what it must show: python -m tests.train_predictors DATA FOLDER [threads=2]

DATA is the whole of the instructions of which tests/data has a tenth; FOLDER keeps the predictors. Half an hour on two
cores that calculate in bfloat16, an hour and more on others. What was trained before is not trained again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from prebleexp import evaluated

MODELS = ("minilm", "tfidf", "prompt_features")
EDGES = ("frequency", "width")
LEAST = {"times_random": 4.8, "auroc": 0.85}
"""of minilm, over 20 bins of equal frequency"""


def run(data: str, folder: Path, *rest: str) -> int:
    paths = []
    for edges in EDGES:
        for model in MODELS:
            path = folder / f"{model}{'' if edges == 'frequency' else '-width'}.safetensors"
            paths.append(str(path))
            if not path.exists():
                predict("train", f"data={data}", f"model={model}", f"edges={edges}", f"out={path}", *rest)
    out = folder / "evaluation"
    predict("evaluate", f"data={data}", f"predictors={','.join(paths)}", f"out={out}", *rest)
    for file in out.iterdir():
        if file.suffix != ".html":
            (evaluated.FOLDER / file.name).write_bytes(file.read_bytes())
    return check()


def predict(*arguments: str) -> None:
    """In a process of its own, whose memory is that of this work alone."""
    subprocess.run([sys.executable, "-m", "prebleexp", "predict", *arguments], check=True)


def check() -> int:
    """Print what MiniLM must reach and does."""
    scores = json.loads((evaluated.FOLDER / "evaluation.json").read_text())["predictors"]["minilm"]["scores"]
    for name, least in LEAST.items():
        print(f"minilm, {name}: at least {least}, reached {scores[name]:.3f}")
    return int(any(scores[name] < least for name, least in LEAST.items()))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
