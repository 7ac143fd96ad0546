"""All the ways in which `engine=continuous` makes batches."""

from __future__ import annotations

from itertools import product

from prebleexp.engines.continuous import PREFILLS, QUEUES, Continuous

BATCHING = [Continuous(), Continuous(decode_steps=1)] + [
    Continuous(queue=queue, prefill=prefill, chunk_tokens=64, block_tokens=block, decode_steps=steps)
    for queue, prefill, block, steps in product(QUEUES, PREFILLS, (1, 16), (1, 8))
]
