"""Machine code of other sources is never run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from prebleexp import machine_code


def test_an_edit_in_any_file_of_the_kernels_changes_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In folders of sim/ and policies/ too."""
    for part in machine_code.COMPILED:
        shutil.copytree(machine_code._PACKAGE / part, tmp_path / part)
    seen = {machine_code._digest()}
    monkeypatch.setattr(machine_code, "_PACKAGE", tmp_path)
    assert machine_code._digest() in seen
    files = sorted(tmp_path.rglob("*.py"))
    assert any(len(file.relative_to(tmp_path).parts) > 2 for file in files)
    for file in files:
        file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
        seen.add(machine_code._digest())
    assert len(seen) == len(files) + 1


def test_it_is_known_when_nothing_was_compiled_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert machine_code.is_missing()
    (machine_code._folder() / "a.nbi").touch()
    assert not machine_code.is_missing()
