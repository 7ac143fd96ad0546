"""How a run came about."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any


@cache
def provenance() -> dict[str, Any]:
    try:
        package = version("prebleexp")
    except PackageNotFoundError:
        package = "a source tree"
    return {"prebleexp": package, "python": platform.python_version(), "host": platform.node()}
