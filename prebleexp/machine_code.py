"""Where numba keeps this package's machine code: a folder of its own for every state of the sources.

numba notices an edit only in the file of the function itself, not in the functions that it calls: with one folder
for all states it would go on running old code.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
COMPILED = ("sim", "policies")
"""parts of the package that hold functions numba compiles"""


def use_own_folder() -> None:
    """Point numba at the folder. To be called before anything of this package is compiled; worker processes
    inherit it."""
    folder = str(_folder())
    os.environ["NUMBA_CACHE_DIR"] = folder
    if "numba" in sys.modules:
        sys.modules["numba"].config.CACHE_DIR = folder


def is_missing() -> bool:
    """Whether nothing was ever compiled from these sources."""
    folder = _folder()
    return not (folder.is_dir() and any(folder.iterdir()))


def _folder() -> Path:
    name = Path("prebleexp") / _digest()
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given and Path(given).name == name.name:
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    for base in (given or home, tempfile.gettempdir()):
        folder = Path(base) / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp()) / name


def _digest() -> str:
    digest = hashlib.sha256()
    for file in sorted(path for part in COMPILED for path in (_PACKAGE / part).rglob("*.py")):
        digest.update(file.relative_to(_PACKAGE).as_posix().encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
