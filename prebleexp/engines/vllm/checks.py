"""What `engine=vllm` cannot be set to where KV comes from elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prebleexp.checks import require

if TYPE_CHECKING:
    from prebleexp.engines.vllm.engine import VLLM


def check_moving(engine: VLLM, where: str, windows: bool) -> None:
    """`windows`: whether KV of layers with windows can come, to requests that have drafts, too. Raises InvalidInput."""
    drafts = engine.speculative_config
    valid = f"null {where}: drafts are not modelled there"
    require(windows or not drafts.drafts, "engine.speculative_config.method", drafts.method, valid)
    valid = f"true or null {where}: KV of layers with windows cannot be moved"
    name, disabled = "engine.disable_hybrid_kv_cache_manager", engine.disable_hybrid_kv_cache_manager
    require(disabled is not False or windows, name, disabled, valid)
    valid = f"fcfs {where}: requests that hold blocks could wait for ever behind others without"
    require(engine.scheduling_policy == "fcfs", "engine.scheduling_policy", engine.scheduling_policy, valid)
