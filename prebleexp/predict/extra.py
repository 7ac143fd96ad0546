"""Libraries that only predictors need: `pip install 'prebleexp[predict]'`."""

from __future__ import annotations

import importlib
from typing import Any

from prebleexp.errors import InvalidInput


def needed(module: str) -> Any:
    """The module. Raises InvalidInput, saying what to install, if it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidInput(
            f"predictors need {module.partition('.')[0]}, which is not installed: pip install 'prebleexp[predict]'"
        ) from error
