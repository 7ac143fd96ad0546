"""`python -m tests.touched [FILE …]`: the quick tests that a change needs, nearest first, for most of a minute.

Without files, what differs from the last commit. What there was no time for is named; .ci/run runs everything.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.imports import nearest
from tests.support.places import ROOT

MOST = 40
"""test modules: to collect all of them takes a third of the minute"""
ALWAYS = ROOT / "tests" / "fast" / "test_architecture.py"
"""looks at all files"""
PAGES = ROOT / "tests" / "fast" / "test_docs.py"
"""looks at those of docs/, and at what they are generated from"""


def changed() -> list[Path]:
    """Files that differ from the last commit, new ones too."""
    asked = ["git", "status", "--porcelain", "--untracked-files=all", "--no-renames"]
    lines = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / line[3:] for line in lines]


def chosen(files: Sequence[Path]) -> list[Path]:
    """The test modules, nearest first."""
    found = nearest([one for one in files if one.suffix in (".py", ".yaml") and one.is_file()])
    more = [ALWAYS, *([PAGES] if any(one.suffix == ".md" for one in files) else [])]
    return [*(one for one in more if one not in found), *found]


def main(words: Sequence[str]) -> int:
    files = [Path(word).resolve() for word in words] or changed()
    missing = [str(one) for one in files if words and not one.is_file()]
    if missing:
        print(f"touched: there is no file {missing[0]}", file=sys.stderr)
        return 2
    names = [str(one.relative_to(ROOT)) for one in chosen(files)]
    print(f"{len(files)} files changed: the {min(MOST, len(names))} nearest of {len(names)} test modules", flush=True)
    command = [sys.executable, "-m", "pytest", "-p", "tests.minute", "-n0", "-q", "-x", *names[:MOST]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
