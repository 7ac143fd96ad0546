"""Models that have the shape of one that is there: the same layers, widths, experts and vocabulary, by their public
configurations. So a step takes as long, and as much KV fits; how long a context may be can differ."""

from __future__ import annotations

import re

SAME = {
    "llama_3_1_70b": ("llama_3_3_70b", "llama_3_70b", "deepseek_r1_distill_llama_70b"),
    "llama_3_1_8b": ("llama_3_8b", "deepseek_r1_distill_llama_8b"),
    "deepseek_r1": ("deepseek_v3", "deepseek_v3_1"),
    "qwen2_5_7b": ("qwen2_7b", "qwen2_5_coder_7b", "deepseek_r1_distill_qwen_7b"),
    "yi_34b": ("yi_1_5_34b",),
}
"""by an option of hardware/model"""


def of_shape(name: str) -> str | None:
    """The option of a model with the shape of one called so, as an option or as its files are: Llama-3.3-70B-Instruct;
    None if it is not known that there is one."""
    found = [
        (len(other), option)
        for option, others in SAME.items()
        for other in others
        if re.search(rf"{letters(other)}(?!\d)", letters(name))  # DeepSeek-V3.2 is another model than V3
    ]
    return max(found)[1] if found else None


def letters(name: str) -> str:
    """A name without what people write in different ways."""
    return re.sub(r"[^a-z0-9]", "", name.lower())
