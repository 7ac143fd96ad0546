"""The policies of docs/policy.md."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.places import ROOT


@contextmanager
def tutorial(folder: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    text = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "check_policy" not in block]
    (folder / "the_tutorial.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("the_tutorial")


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch, tutorial(tmp_path_factory.mktemp("tutorial"), patch) as module:
        yield module
