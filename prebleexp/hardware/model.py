"""The shape of a transformer: what it keeps, reads and computes, as its public configuration says."""

from __future__ import annotations

from dataclasses import dataclass

from prebleexp.checks import flag, integer, is_number, one_of, require
from prebleexp.sim.types import CHUNKED, FULL, SLIDING, Layers

BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5625, "int4": 0.53}
"""a weight, scales included"""
KV_PRECISIONS = ("bf16", "fp8")
"""in which a cache may be"""
MOST = 2**31 - 1
MLA_VALUES, MLA_KEYS = 128, 256
"""elements of a head of latent attention: of its values, and of keys without position and values together"""


@dataclass(frozen=True)
class Model:
    """One of conf/hardware/model/. Sizes are in elements.

    With experts `ffn` is one expert's, and `dense_ffn` that of the leading layers without any.

    Raises InvalidInput, naming the field, for values that cannot be.
    """

    name: str
    """as measurements call it"""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_length: int
    experts: int = 0
    """of a layer; 0: none"""
    active: int = 0
    """experts that a token goes through, …"""
    shared: int = 0
    """… and those that all tokens go through"""
    dense_layers: int = 0
    dense_ffn: int = 0
    mla_latent: int = 0
    """elements that latent attention keeps of a token in a layer; 0: it has none"""
    mla_q_rank: int = 0
    window: int = 0
    """tokens that layers with a sliding window look back"""
    window_share: float = 0.0
    """of the layers"""
    chunked: bool = False
    """whether these look back to where a chunk of so many tokens begins, and not to a window"""
    gated: bool = True
    """whether the FFN has a gate: three matrices, not two"""
    expert_precision: str = ""
    """in which experts are stored whatever the rest is, and computed in BF16; empty: as the rest"""

    def __post_init__(self) -> None:
        require(isinstance(self.name, str) and bool(self.name), "hardware.model.name", self.name, "a name")
        sizes = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context_length")
        for field in sizes:
            integer(f"hardware.model.{field}", getattr(self, field), 1, MOST)
        for field in ("experts", "shared", "dense_ffn", "mla_latent", "mla_q_rank", "window"):
            integer(f"hardware.model.{field}", getattr(self, field), 0, MOST)
        integer("hardware.model.active", self.active, min(1, self.experts), self.experts)
        integer("hardware.model.dense_layers", self.dense_layers, 0, self.layers)
        share = self.window_share
        require(is_number(share) and 0 <= share <= 1, "hardware.model.window_share", share, "a number from 0 to 1")
        object.__setattr__(self, "window_share", float(share))
        for field in ("gated", "chunked"):
            flag(f"hardware.model.{field}", getattr(self, field))
        one_of("hardware.model.expert_precision", self.expert_precision, ("", *BYTES))

    # Parameters, of one layer
    @property
    def attention(self) -> int:
        h, n, d = self.hidden, self.heads, self.head_dim
        if not self.mla_latent:
            return h * (n + 2 * self.kv_heads) * d + n * d * h
        values = n * MLA_VALUES
        keys = (self.mla_latent - 64) * n * MLA_KEYS  # 64 of the latent are of the position, and not projected
        return h * self.mla_q_rank + self.mla_q_rank * n * d + h * self.mla_latent + keys + values * h

    @property
    def one_ffn(self) -> int:
        return (3 if self.gated else 2) * self.hidden * self.ffn

    # Parameters, of all layers
    @property
    def expert_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def linear(self) -> int:
        """Parameters of linear layers that every token goes through: attention, dense and shared feed-forward
        layers."""
        ffn = self.one_ffn * self.shared + self.hidden * self.experts if self.experts else self.one_ffn
        dense = 3 * self.hidden * self.dense_ffn
        return self.layers * self.attention + (self.layers - self.dense_layers) * ffn + self.dense_layers * dense

    @property
    def expert(self) -> int:
        """One expert of each layer that has any."""
        return self.expert_layers * self.one_ffn

    @property
    def embeddings(self) -> int:
        """At both ends, of which the output head is one."""
        return 2 * self.vocab * self.hidden

    # Attention
    @property
    def kv_elements(self) -> int:
        """Kept of a token, in all layers."""
        return self.layers * (self.mla_latent or 2 * self.kv_heads * self.head_dim)

    @property
    def pair_flops(self) -> int:
        """Of a query and a key, in all layers."""
        each = 2 * self.heads * (self.head_dim + MLA_VALUES) if self.mla_latent else 4 * self.heads * self.head_dim
        return self.layers * each

    @property
    def layer_kinds(self) -> tuple[Layers, ...]:
        """Layers by what they look back to, those with a window first, as models have them; none: all look back to
        all."""
        near = round(self.window_share * self.layers) if self.window else 0
        if near == 0:
            return ()
        kinds = (Layers(CHUNKED if self.chunked else SLIDING, self.window, near), Layers(FULL, 0, self.layers - near))
        return tuple(one for one in kinds if one.layers)

    def kv_share(self, gpus: int) -> int:
        """Into how many parts the KV of a token is divided: heads are, a latent is on every GPU."""
        return 1 if self.mla_latent else min(gpus, self.kv_heads)

    def gpu_weight_bytes(self, precision: str, gpus: int, ranks: int, stages: int) -> float:
        """On the GPU that has most, where a rank's stage is on so many: experts are spread over all ranks, layers over
        stages, and the embeddings are at both ends of these."""
        whole = self.weight_bytes(precision)
        if ranks * stages == 1:
            return whole / gpus
        experts = self.experts * self.expert * BYTES[self.expert_precision or precision]
        ends = self.embeddings * BYTES["bf16"]
        return ((whole - experts - ends + experts / ranks) / stages + ends / min(stages, 2)) / gpus

    def experts_apart(self, precision: str) -> str:
        """The format of its experts, where that is not what the rest is in; else empty."""
        return "" if self.expert_precision == precision else self.expert_precision

    def stored(self, precision: str) -> str:
        """ "gpt-oss-120b in bf16 with experts in fp4": experts in a format of their own are most of its weights."""
        own = self.experts_apart(precision)
        return f"{self.name} in {precision}" + (f" with experts in {own}" if own else "")

    def weight_bytes(self, precision: str) -> float:
        """Of all of it; embeddings stay in BF16."""
        experts = self.experts * self.expert * BYTES[self.expert_precision or precision]
        return self.linear * BYTES[precision] + experts + self.embeddings * BYTES["bf16"]
