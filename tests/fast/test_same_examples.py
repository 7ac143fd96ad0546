"""Laws try the same examples alone as in the whole run: the process's other modules have no part in them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers


def tried() -> list[int]:
    found = list[int]()

    @settings(settings.get_profile("all"), max_examples=100)
    @given(st.integers(-1000, 1000))
    def law(value: int) -> None:
        found.append(value)

    law()
    return found


@pytest.mark.skipif(not settings.default.derandomize, reason="a search takes constants from whatever there is")
def test_what_is_imported_lends_no_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tried()
    source = tmp_path / "lender.py"
    source.write_text(f"SOME = {list(range(-999, 999, 7))}\n")
    spec = importlib.util.spec_from_file_location("lender", source)
    assert spec is not None
    monkeypatch.setitem(sys.modules, "lender", importlib.util.module_from_spec(spec))
    monkeypatch.setitem(sys.modules, "another", importlib.util.module_from_spec(spec))  # one more or less is noticed
    assert tried() == before
    assert len(providers._get_local_constants()) == 0
