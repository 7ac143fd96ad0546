"""Small policies in plain Python, some of which are slow or fail."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.policies.base import Policy
from prebleexp.sim.records import View
from prebleexp.sim.types import Setup


@dataclass(frozen=True)
class First(Policy):
    """Plain Python."""

    compiled: ClassVar[bool] = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return 0


@dataclass(frozen=True)
class Deadly(First):
    """Ends the process that it runs in, but for this one."""

    spared: int = 0
    how: str = "exit"

    def start(self, setup: Setup) -> Any:
        if self.how == "sys.exit":
            raise SystemExit(3)
        assert os.getpid() != self.spared
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(3)


@dataclass(frozen=True)
class Slow(First):
    pause_s: float = 0.02

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        time.sleep(self.pause_s)
        return 0


@dataclass(frozen=True)
class Last(Policy):
    """Plain Python."""

    gpu: int = 1

    compiled: ClassVar[bool] = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return len(view.sent) - 1


@dataclass(frozen=True)
class Nowhere(Last):
    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return 99
