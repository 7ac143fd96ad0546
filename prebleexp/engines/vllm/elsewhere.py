"""The functions of the plug for KV that goes to tiers, to other GPUs, or with requests that are moved."""

from __future__ import annotations

from prebleexp.engines.vllm.arriving import do_without as do_without
from prebleexp.engines.vllm.failing import fail as fail
from prebleexp.engines.vllm.loading import fetch as fetch
from prebleexp.engines.vllm.moving import abandon as abandon
from prebleexp.engines.vllm.moving import copied as copied
from prebleexp.engines.vllm.moving import move as move
from prebleexp.engines.vllm.moving import set_aside as set_aside
from prebleexp.engines.vllm.moving import set_free as set_free
from prebleexp.engines.vllm.moving import spares as spares
from prebleexp.engines.vllm.moving import stop as stop
from prebleexp.engines.vllm.moving import take_in as take_in
from prebleexp.engines.vllm.peers import has as has
from prebleexp.engines.vllm.peers import lend as lend
from prebleexp.engines.vllm.peers import take_back as take_back
from prebleexp.engines.vllm.storing import offload as offload
from prebleexp.engines.vllm.storing import part as part
from prebleexp.engines.vllm.tiering import heard as heard
from prebleexp.engines.vllm.tiering import landed as landed
