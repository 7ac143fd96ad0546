"""What a GPU remembers of its last admissions, for a hit ratio as vLLM's own statistics have it
(vllm/v1/metrics/stats.py)."""

from __future__ import annotations

import numpy as np

RECENT = 1000
"""admissions"""

FIELDS = [
    ("lookups", np.int64),  # admissions so far: the last `RECENT` make the hit ratio
    ("recent_hits", np.int64),  # prompt tokens found by them, …
    ("recent_prompts", np.int64),  # … of so many
]
"""of a GPU's record; beside it stands `recent`, (GPUs, `RECENT`, 2): tokens found and all of them, of each admission"""
