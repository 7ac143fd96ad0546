"""The quick tests have power: ten lines, each made wrong in a copy of the package, are each caught by one of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytestmark = pytest.mark.slow
MUTATIONS = [
    # file of the package, what stands there, what stands there instead, which quick test must fail
    ("intervals.py", "t_quantile(n - 1, confidence)", "t_quantile(n, confidence)", "fast/test_intervals.py"),
    ("precision.py", "/ len(self.looks)) *", ") *", "fast/test_precision.py"),
    (
        "errors.py",
        "get_close_matches(name.lower()",
        "get_close_matches(name",
        "fast/test_newcomer.py::test_who_says_it_otherwise_is_told_the_name",
    ),
    ("experiment/sealed.py", "if data != ", "if not data and data != ", "fast/test_cache.py"),
    ("experiment/cell.py", 'left_out.append("lengths")', 'left_out.append("seed")', "fast/test_key.py"),
    ("told.py", "np.abs(told - lengths)", "(told - lengths)", "predict/test_prediction.py"),
    ("sim/book.py", "    sent.outstanding -= 1\n", "    sent.outstanding -= 0\n", "fast/test_oracle.py"),
    (
        "engines/batching.py",
        "        job.computed += job.chunk\n",
        "        job.computed += job.chunk + 1\n",
        "fast/test_oracle.py",
    ),
    ("sources.py", "        text = _text(file)\n", '        text = b""\n', "fast/test_machine_code.py"),
    (
        "policies/e2_as_described/rules.py",
        "seen.window_hit_tokens / prompt >= mine",
        "seen.window_hit_tokens / prompt < mine",
        "fast/test_e2.py",
    ),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "right", "wrong", "tests"), MUTATIONS, ids=[one[0] for one in MUTATIONS])
def test_a_line_that_is_wrong_is_noticed(name: str, right: str, wrong: str, tests: str, tmp_path: Path) -> None:
    for part in ("prebleexp", "conf", "sweeps", "tests", "hydra_plugins"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, tmp_path / file)
    mutated = tmp_path / "prebleexp" / name
    text = mutated.read_text(encoding="utf-8")
    assert text.count(right) == 1
    mutated.write_text(text.replace(right, wrong), encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-n0",
            "-p",
            "no:cacheprovider",
            "--hypothesis-profile=found",
            f"tests/{tests}",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, f"{name} may be wrong: {done.stdout[-2000:]}{done.stderr}"
    assert "1 failed" in done.stdout or "1 error" in done.stdout
