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
    for i, start in enumerate(sorted(chance.uniform(0, 60) for _ in range(120))):
        model = "qwen3-32b" if i % 4 == 0 else "llama-3.1-8b"
        said = [{"role": "system", "content": f"You are assistant {chance.randrange(4)}. " * 60}]
        for turn in range(chance.randint(1, 4)):
            said = [*said, {"role": "user", "content": f"question {chance.randrange(10**6)} " * 20}]
            usage = {"completion_tokens": chance.choice([40, 80, 160])}
            row = {"timestamp": start + 6.0 * turn, "model": model, "request": {"messages": said}}
            rows.append(row | {"response": {"usage": usage}})
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


# ---------------------------------------------------------------- the workflow, as GitHub would run it
WORSE = "return a if view.sent[a].outstanding > view.sent[b].outstanding else b"
BETTER = "return a if view.sent[a].outstanding <= view.sent[b].outstanding else b"


class Project:
    """A repository of a user, and the workflow of the guide with a shorter load."""

    def __init__(self, folder: Path) -> None:
        text = (ROOT / "docs" / "guide_ci.md").read_text(encoding="utf-8")
        (workflow,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        self.workflow = yaml.safe_load(workflow)
        self.folder, self.bin = folder / "project", folder / "bin"
        self.bin.mkdir()
        command = self.bin / "prebleexp"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m prebleexp "$@"\n')
        command.chmod(0o755)
        self.folder.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.folder / "README").write_text("mine")
        self.commit()

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=me", "-c", "user.email=me@example.com")
        done = subprocess.run(("git", *who, *arguments), cwd=self.folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self) -> str:
        self.git("add", "README", "*.py", "conf") if (self.folder / "conf").exists() else self.git("add", "README")
        self.git("commit", "-q", "--allow-empty", "-m", "change")
        return self.git("rev-parse", "HEAD")

    def built(self, base: str, head: str) -> subprocess.CompletedProcess[str]:
        """All steps that are commands, but that of pip; no variable may be undefined. What is not in git is another
        machine's."""
        known = {name: str(value) for name, value in self.workflow["env"].items()}
        known["RUNS"] = known["RUNS"].replace("duration_s=20", "duration_s=4")
        steps = [step["run"] for step in self.workflow["jobs"]["compare"]["steps"] if "run" in step]
        assert steps[0] == 'pip install "$PREBLEEXP"'
        script = "set -eu\n" + "\n".join(steps[1:])
        for name, value in (("base", base), ("head", head)):
            script = script.replace(f"${{{{ github.event.pull_request.{name}.sha }}}}", value)
        assert "${{" not in script
        for left in ("main.tar", "change.tar"):
            (self.folder / left).unlink(missing_ok=True)
        environment = os.environ | known | {"PYTHONPATH": str(ROOT), "PATH": f"{self.bin}:{os.environ['PATH']}"}
        return subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )


def test_the_workflow_takes_the_first_pull_request_and_fails_a_worse_one(tmp_path: Path) -> None:
    """It ran the policy on the base, where the pull request that adds it finds "unknown policy"."""
    project = Project(tmp_path)
    base = project.git("rev-parse", "HEAD")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (option,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    (project.folder / "conf" / "policy").mkdir(parents=True)
    (project.folder / "conf" / "policy" / "power_of_two.yaml").write_text(option)
    (project.folder / "power_of_two.py").write_text(source)
    first = project.commit()
    added = project.built(base, first)
    assert added.returncode == 0, added.stderr
    assert "fail_if=p99_ttft:+100%: passed" in added.stderr

    (project.folder / "README").write_text("only words")
    same = project.commit()
    kept = project.built(first, same)
    assert kept.returncode == 0, kept.stderr
    assert "fail_if=p99_ttft:+5%: passed" in kept.stderr

    assert BETTER in source
    (project.folder / "power_of_two.py").write_text(source.replace(BETTER, WORSE))
    worse = project.built(same, project.commit())
    assert worse.returncode == 1, worse.stderr
    assert "fail_if=p99_ttft:+5%: ttft_p99_s +" in worse.stderr


def test_the_workflow_runs_what_the_guide_says_by_hand() -> None:
    text = (ROOT / "docs" / "guide_ci.md").read_text(encoding="utf-8")
    (workflow,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    whole = yaml.safe_load(workflow)
    steps = whole["jobs"]["compare"]["steps"]
    run = [line.strip() for step in steps for line in step.get("run", "").splitlines() if " prebleexp " in f" {line} "]
    spelt = [line.replace("$POLICY", whole["env"]["POLICY"]).replace("$RUNS", whole["env"]["RUNS"]) for line in run]
    by_hand = commands(text)
    first = [line.removesuffix(" report=none") for line in spelt]
    assert first[:5] == by_hand[:5]
    assert first[6] == by_hand[6].replace("sweep=against", "sweep=ci")
    assert len(first) == len(by_hand) == 7
    kept = next(step["with"]["path"].split() for step in steps if step.get("uses", "").startswith("actions/cache"))
    assert kept == ["cache", "~/.cache/prebleexp"]
