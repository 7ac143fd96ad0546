"""The README does what it says, in its order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
pytestmark = pytest.mark.slow


def commands() -> list[str]:
    """Every command, in order, but for those that install or test."""
    found = []
    text = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    for line in re.findall(r"^    (.*)$|`(prebleexp [^`]*)`", text, re.MULTILINE):
        for one in "".join(line).split(" && "):
            command = one.partition("  #")[0].strip()
            if re.match(r"(\.venv/bin/python -m )?prebleexp ", command):
                found.append(command.removeprefix(".venv/bin/python -m "))
    return found


@pytest.mark.nightly
def test_every_command_works_in_an_empty_folder_in_the_order_of_the_page(tmp_path: Path) -> None:
    """But for the two largest sweeps, which are asked for and not run."""
    (source,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    (yaml,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "power_of_two.py").write_text(source)
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "power_of_two.yaml").write_text(yaml)
    found = commands()
    assert len(found) >= 10
    assert [one for one in found if "+sweeps=paper" in one]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "BROWSER": "true"}
    for command in found:
        words = shlex.split(command)[1:]
        if "+sweeps=paper" in words or "+sweeps=prediction" in words:
            words.append("--dry")
        done = subprocess.run(
            [sys.executable, "-m", "prebleexp", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        print(command, len(done.stdout.splitlines()), "lines")
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert done.stdout, command
    assert (tmp_path / "reports" / "first" / "index.html").is_file()
    assert (tmp_path / "reports" / "two" / "index.html").is_file()
