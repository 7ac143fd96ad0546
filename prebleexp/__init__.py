"""prebleexp: a laboratory for one question, to which GPU should an LLM request go?

>>> import prebleexp
>>> result = prebleexp.run(gpus=2, rps=2, duration_s=5, policy="lor")
>>> result.metrics["n_finished"]
10
>>> sweep = prebleexp.sweep(policy=["lor", "e2"], gpus=2, rps=[2, 4], duration_s=5)
>>> len(sweep.frame())
4
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["InvalidInput", "Plan", "PrebleexpError", "Result", "Sweep", "plan", "run", "sweep"]

if TYPE_CHECKING:
    from prebleexp.api.plan import Plan, plan
    from prebleexp.api.run import Result, run
    from prebleexp.api.sweep import Sweep, sweep
    from prebleexp.errors import InvalidInput, PrebleexpError
else:

    def __getattr__(name):
        """Loads what is asked for: the parts of the package that need none of it start without."""
        from importlib import import_module

        homes = {"Result": "run", "run": "run", "Sweep": "sweep", "sweep": "sweep", "Plan": "plan", "plan": "plan"}
        if name not in __all__:
            raise AttributeError(f"module 'prebleexp' has no attribute {name!r}")
        found = getattr(import_module(f"prebleexp.api.{homes[name]}" if name in homes else "prebleexp.errors"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return __all__
