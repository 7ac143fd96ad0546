"""What a plan's answers cost in a month, as budgets are made."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.planning.planned import Planned
from prebleexp.report.wording import listed, number

HOURS = 730
"""of a month: 365 days of 24 hours over 12"""


def said(found: Sequence[Planned]) -> list[str]:
    """ "at 730 hours a month, 5.00 an hour are 3,650"; of each price once, and nothing where there are none."""
    prices = dict.fromkeys(one.price for one in found if one.price is not None)
    if not prices:
        return []
    each = listed([f"{number(price)} an hour are {price * HOURS:,.0f}" for price in prices])
    return [f"at {HOURS} hours a month, {each}"]
