"""Runs in a process that compiles nothing, told by their digests."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import fields
from typing import Any

import prebleexp
from tests.support.places import ROOT

DIGEST = """
import sys
from tests.support.interpreted import digest
for settings in sys.argv[1:]:
    print(digest(*settings.split()))
"""


def digest(*settings: str) -> str:
    """Of a run's outcome."""
    outcome: Any = prebleexp.run(**dict(one.split("=", 1) for one in settings), cache_dir=None).computed.outcome
    columns = (
        getattr(outcome, field.name) for field in fields(outcome) if field.name not in ("end_s", "history", "begun")
    )
    happened = repr(outcome.history).encode()
    return hashlib.sha256(happened + b"".join(bytes(memoryview(column)) for column in columns)).hexdigest()


def said(script: str, *arguments: str) -> str:
    """What a script says in a process that compiles nothing."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def printed(script: str, *arguments: str) -> list[str]:
    """The same, word by word."""
    return said(script, *arguments).split()


def interpreted(*runs: str) -> list[str]:
    """The digest of each, from such a process."""
    return printed(DIGEST, *runs)


SCARCE = "hardware.kv_tokens=6000 gpus=3 rps=8 duration_s=3"
