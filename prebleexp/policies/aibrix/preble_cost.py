"""What AIBrix's prefix-cache-preble takes a prefill to cost: fits for Mistral 7B (pkg/plugins/gateway/algorithms)."""

from __future__ import annotations

from typing import Any, NamedTuple

from prebleexp.sim.compiled import compiled


class Curve(NamedTuple):
    """A polynomial in the number of tokens, in milliseconds: constant, per token, per token squared."""

    constant: float
    slope: float = 0.0
    square: float = 0.0


class Fit(NamedTuple):
    few: Curve
    """linear layers of less than 192 tokens, …"""
    some: Curve
    """… of less than 384: it falls, below zero before it ends, as it does there, …"""
    many: Curve
    """… and of more"""
    short: Curve
    """attention over a context of 1,024 tokens at most, …"""
    long: Curve
    """… and over more, of which half counts if at most 1,024 tokens are new"""
    quadratic: Curve
    """and what comes on top for 4,096 new tokens or more"""


FITS = {
    "V100": Fit(
        Curve(55.0),
        Curve(-295.0, 3.125, -6.4e-3),
        Curve(10.52444263, 0.27106428),
        Curve(0.80),
        Curve(0.398, 4.65e-4),
        Curve(-18.425, 9.65e-3, 5.4e-6),
    ),
    "A6000": Fit(
        Curve(22.0),
        Curve(-118.0, 1.25, -2.56e-3),
        Curve(4.209777054806409, 0.10842571),
        Curve(0.32),
        Curve(0.159, 1.86e-4),
        Curve(-7.37, 3.86e-3, 2.16e-6),
    ),
}

BUSY = 0.9
"""share of the time that a GPU computes"""


@compiled
def prefill_s(fit: Any, tokens: int, context: int) -> float:
    """Seconds to compute the last `tokens` tokens of a context."""
    if tokens >= 384:
        ms = _ms(fit.many, tokens)
    elif tokens >= 192:
        ms = _ms(fit.some, tokens)
    else:
        ms = _ms(fit.few, tokens)
    if context <= 1024:
        ms += _ms(fit.short, context)
    else:
        ms += _ms(fit.long, context) * (0.5 if tokens <= 1024 else 1.0)
    if tokens >= 4096:
        ms += _ms(fit.quadratic, tokens)
    return ms / 1000.0 / BUSY


@compiled
def _ms(curve: Any, tokens: int) -> float:
    return float(curve.constant + curve.slope * tokens + curve.square * tokens * tokens)
