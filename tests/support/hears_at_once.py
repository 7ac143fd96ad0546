"""vLLM's engine, whose GPUs hear at once of KV that has come where they have nothing to compute, as in recordings and
in examples on paper. In vLLM they look each millisecond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prebleexp.engines.vllm.engine import VLLM
from tests.support.shared_code import shares_code


@shares_code(VLLM)
@dataclass(frozen=True)
class HearsAtOnce(VLLM):
    idle_poll_s: ClassVar[float] = 0.0
