"""The guides do what they say: every command of theirs works, in order, in one folder with a log and a policy."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.places import ROOT

pytestmark = pytest.mark.slow
GUIDES = sorted((ROOT / "docs").glob("guide_*.md"))


def commands(text: str) -> list[str]:
    return re.findall(r"^    (prebleexp .*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)


def furnished(folder: Path) -> None:
    """With what the guides speak of: a log, the README's policy, and a benchmark's result."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (option,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    (folder / "power_of_two.py").write_text(source)
    (folder / "conf" / "policy").mkdir(parents=True)
    (folder / "conf" / "policy" / "power_of_two.yaml").write_text(option)
    chance, rows = random.Random(3), []
    for start in sorted(chance.uniform(0, 60) for _ in range(120)):
        said = [{"role": "system", "content": f"You are assistant {chance.randrange(4)}. " * 60}]
        for turn in range(chance.randint(1, 4)):
            said = [*said, {"role": "user", "content": f"question {chance.randrange(10**6)} " * 20}]
            usage = {"completion_tokens": chance.choice([40, 80, 160])}
            rows.append({"timestamp": start + 6.0 * turn, "request": {"messages": said}, "response": {"usage": usage}})
            said = [*said, {"role": "assistant", "content": "an answer " * 40}]
    rows.sort(key=lambda row: float(str(row["timestamp"])))
    (folder / "requests.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    bench = "bench-serve gpus=1 hardware/gpu=h100 hardware/model=llama_3_1_8b -- vllm bench serve --num-prompts 40"
    typed(folder, f"{bench} --request-rate 4 --save-result --save-detailed --result-filename measured.json")


def typed(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "prebleexp", *shlex.split(command)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "BROWSER": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done


@pytest.mark.nightly  # all guides together take minutes
@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_every_command_of_a_guide_works_in_its_order(page: Path, tmp_path: Path) -> None:
    furnished(tmp_path)
    found = commands(page.read_text(encoding="utf-8"))
    assert len(found) >= 6
    for command in found:
        done = typed(tmp_path, command.removeprefix("prebleexp "))
        assert done.stdout or done.stderr, command


def test_the_workflow_is_one_and_its_commands_are_the_guides() -> None:
    text = (ROOT / "docs" / "guide_ci.md").read_text(encoding="utf-8")
    (workflow,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    steps = yaml.safe_load(workflow)["jobs"]["compare"]["steps"]
    run = [step["run"].removesuffix(" report=none") for step in steps if step.get("run", "").startswith("prebleexp ")]
    assert run == commands(text)[: len(run)]
    assert len(run) == 5
    kept = next(step["with"]["path"].split() for step in steps if step.get("uses", "").startswith("actions/cache"))
    assert kept == ["cache", "~/.cache/prebleexp"]
