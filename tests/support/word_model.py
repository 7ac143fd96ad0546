"""A model's directory without weights, whose words are its tokens: "t17 t4" is [17, 4], as mocks have it."""

from __future__ import annotations

import json
from pathlib import Path

VOCABULARY = 1024


def write(folder: Path, hidden: int, ffn: int, layers: int, heads: int, context: int) -> None:
    """As vLLM takes it with `--load-format dummy`, and clients that count tokens."""
    words = {f"t{i}": i for i in range(VOCABULARY - 3)}
    words |= {"<unk>": VOCABULARY - 3, "<s>": VOCABULARY - 2, "</s>": VOCABULARY - 1}
    special = {"bos_token_id": words["<s>"], "eos_token_id": words["</s>"]}
    sizes = {"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "head_dim": hidden // heads}
    sizes |= {"num_attention_heads": heads, "num_key_value_heads": heads, "max_position_embeddings": context}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", **sizes}
    config |= {"vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True}
    nothing = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    tokenizer = {
        **{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}, **nothing},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    files = {"tokenizer": tokenizer, "tokenizer_config": about, "generation_config": special}
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in ({"config": config | special} | files).items():
        (folder / f"{name}.json").write_text(json.dumps(made), encoding="utf-8")
