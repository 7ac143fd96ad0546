"""Files of load generators, made anew: what tests/data/tools/made.json names is run against a small server.

    python -m tests.make_tool_files TOOLS TOKENIZER [NAME …]

In TOOLS is a virtual environment for each of vllm, sglang, aiperf, guidellm and inference-perf, so called (versions: in
made.json; `tokenizers` must be in aiperf's); in TOKENIZER the files of one of Hugging Face's, that needs no network. A
run's command is as it stands in made.json, the settings of inference-perf too; the file that it wrote is packed, and
beside it stand what the server saw and what the tool printed.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data" / "tools"
ROOT = Path(__file__).parents[1]
URL = "http://127.0.0.1:8000"
PRINTED = {
    "requests": r"(?:Successful requests:|Request Count \(requests\) │) +([\d.,]+)",
    "input_tokens": r"Total input tokens: +([\d.,]+)",
    "output_tokens": r"Total generated tokens: +([\d.,]+)",
    "mean_input": r"Input Sequence Length \(tokens\) │ +([\d.,]+)",
    "mean_output": r"Output Sequence Length \(tokens\) │ +([\d.,]+)",
}


def run(tools: Path, tokenizer: Path, name: str, made: dict[str, Any]) -> dict[str, Any]:
    """The run's entry, with what came of it. Raises CalledProcessError if the tool fails."""
    with tempfile.TemporaryDirectory() as scratch:
        where, command, tool = Path(scratch), made["command"], name.split("_")[0]
        shutil.copytree(tokenizer, where / "bert")
        shutil.copy(FOLDER / "custom.jsonl", where)
        if command.startswith("{"):
            settings = json.loads(command)
            settings["storage"] = {"local_storage": {"path": "out"}}
            (where / "settings.yml").write_text(json.dumps(settings))
            command = "inference-perf -c settings.yml"
        log = where / "served.jsonl"
        environment = os.environ | {
            "PATH": f"{tools / tool.replace('inference', 'inference-perf')}/bin:{os.environ['PATH']}"
        }
        python = tools / "aiperf" / "bin" / "python"
        server = subprocess.Popen(
            [python, "-m", "tests.support.token_server", "8000", str(tokenizer.absolute()), str(log)], cwd=ROOT
        )
        try:
            time.sleep(1)
            ran = subprocess.run(
                command, shell=True, cwd=where, env=environment, capture_output=True, text=True, check=True, timeout=300
            )
        finally:
            server.kill()
        stem = Path(made["file"]).with_suffix("").suffix
        [wrote] = [
            *where.glob(f"{name}{stem}"),
            *where.glob("out/profile_export.jsonl"),
            *where.glob("out/per_request_*"),
        ]
        with gzip.GzipFile(FOLDER / made["file"], "wb", mtime=0) as file:
            file.write(wrote.read_bytes())
        served = [json.loads(line) for line in log.read_text().splitlines()]
        found = {key: re.findall(pattern, ran.stdout) for key, pattern in PRINTED.items()}
        printed = {key: float(values[-1].replace(",", "")) for key, values in found.items() if values}
        return made | {
            "served": [[round(when - served[0][0], 4), prompt, output] for when, prompt, output in served],
            "printed": printed,
        }


if __name__ == "__main__":
    every = json.loads((FOLDER / "made.json").read_text())
    for one in sys.argv[3:] or every:
        every[one] = run(Path(sys.argv[1]), Path(sys.argv[2]), one, every[one])
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in every.items()]
        (FOLDER / "made.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
