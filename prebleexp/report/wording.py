"""Numbers, axes and lists as people write them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from prebleexp.report.summary import LOADS, Value

NOTHING = "–"
NAMES_ENOUGH = ("variant", "policy", "load", "line", "told", "cluster", "rank", "over", "tried")
"""axes whose values need not be said what they are"""
AXIS_LABELS = {
    "gpus": "GPUs",
    "replicas": "Replicas",
    "workload.lanes": "Users",
    "rps": "Request rate (requests/s)",
    "output_length_variance": "Variance of output lengths asked for (tokens²)",
}


def as_sentence(text: str) -> str:
    """With a full stop, and a capital unless it begins with a name, as of a key or of a file."""
    first = text.partition(" ")[0]
    return f"{text if {*first} & {*'.:=_/'} else text[0].upper() + text[1:]}."


def number(value: float | None, digits: int = 3) -> str:
    """`digits` significant digits, never in scientific notation between 0.00001 and 1,000,000."""
    if value is None:
        return NOTHING
    if not 1e-5 <= abs(value) < 1e6:  # 0 among them
        return _signed(f"{value:.{digits}g}")
    return _fixed(value, digits - 1 - math.floor(math.log10(abs(value))))


def interval(mean_and_half_width: tuple[float, float | None] | None) -> str:
    """Mean ± half-width, both to the second significant digit of the half-width."""
    if mean_and_half_width is None:
        return NOTHING
    mean, half_width = mean_and_half_width
    if half_width is None:
        return number(mean)
    if half_width == 0 or not math.isfinite(half_width):
        return f"{number(mean)} ± {half_width:g}"
    decimals = 1 - math.floor(math.log10(half_width))
    if decimals > 8:
        return _signed(f"{mean:.3g} ± {half_width:.2g}")
    return f"{_fixed(mean, decimals)} ± {_fixed(half_width, decimals)}"


def seconds(mean: tuple[float, float | None] | None) -> str:
    """250 ± 3 ms; of a second or more in seconds."""
    if mean is None:
        return NOTHING
    value, half = mean
    scale, unit = (1.0, "s") if value >= 1 else (1000.0, "ms")
    return f"{number(value * scale)}{'' if half is None else f' ± {number(half * scale, 2)}'} {unit}"


def share(mean: tuple[float, float | None], digits: int) -> str:
    """A share of 1 with its half-width, in per cent with so many digits: "93.1 ± 0.4 %"."""
    value, half = mean
    return f"{number(value * 100, digits)}{'' if half is None else f' ± {number(half * 100, 2)}'} %"


def whole_percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def percent(share: float | None) -> str:
    """Rounded down where it would say 100 % of something that is not all."""
    if share is None:
        return NOTHING
    return f"{min(share * 100, 99.9) if share < 1 else 100.0:.1f} %"


def signed_percent(difference: float, half_width: float | None) -> str:
    """+12 ± 3 %, with a decimal where that is known, for sentences; a half-width that rounds to nothing is not said."""
    digits = 0 if abs(difference) >= 0.1 or (half_width or 0) >= 0.1 else 1
    half = f"{(half_width or 0) * 100:,.{digits}f}"
    return _signed(f"{difference * 100:+,.{digits}f}{f' ± {half}' if float(half.replace(',', '')) else ''} %")


def signed_range(low: float, high: float) -> str:
    """−4.0 to +0.9 %, of percentages"""
    digits = 0 if max(abs(low), abs(high)) >= 10 else 1
    rounded = [round(end, digits) for end in (low, high)]
    ends = [_signed(f"{end:+,.{digits}f}") if end else f"{0:.{digits}f}" for end in rounded]
    return f"{' to '.join(dict.fromkeys(ends))} %"


def percent_difference(difference: float | None, half_width: float | None) -> str:
    """A relative difference with its half-width, in per cent: "+12.3 ± 1.2 %"; a dash for none."""
    if difference is None:
        return NOTHING
    digits = decimals(difference, half_width)
    half = "" if half_width is None else f" ± {half_width * 100:.{digits}f}"
    return _signed(f"{difference * 100:+.{digits}f}{half} %")


def decimals(*shares: float | None) -> int:
    """Of per cent: one, or two where one would say 0.0 of what is something."""
    return 2 if any(one and round(abs(one) * 100, 1) == 0 for one in shares) else 1


def tick(value: float) -> str:
    """A number on an axis: no digit that says nothing."""
    return _signed(f"{round(value):,}" if abs(value) >= 1000 else f"{value:.4g}")


def plain(value: Value) -> str:
    """An axis value as the user would write it: 64, not 64.0."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def short(value: Value) -> str:
    """Of the path of a class its name."""
    text = plain(value)
    return text.rpartition(".")[2] if re.fullmatch(r"\w+(\.\w+)*\.[A-Z]\w*", text) else text


def condition(axis: str, value: Value) -> str:
    """An axis and its value in a sentence: "128 requests/s", "8 GPUs", "duration_s = 30"."""
    if axis == "rps":
        return f"{plain(value)} request{'' if value == 1 else 's'}/s"
    if axis == "workload.lanes":
        return f"{plain(value)} user{'' if value == 1 else 's'}"
    if axis == "gpus":
        return f"{plain(value)} GPU{'' if value == 1 else 's'}"
    if axis == "output_length_variance":
        return f"a variance of {number(float(value or 0), 4)} tokens²"
    return plain(value) if axis in NAMES_ENOUGH else f"{axis} = {plain(value)}"


def line_name(axis: str, value: Value) -> str:
    """A line's name: of a number what it is, too."""
    return condition(axis, value) if axis in LOADS else plain(value)


def conditions(at: Mapping[str, Value], axes: Sequence[str]) -> str:
    return ", ".join(condition(axis, at[axis]) for axis in axes)


def slug(text: str) -> str:
    """What can stand in an id or in the name of a file."""
    return re.sub(r"[^\w-]+", "-", text)[:80]


def lower_first(text: str) -> str:
    """In the middle of a sentence; abbreviations stay as they are."""
    return text if text[:2].isupper() else f"{text[:1].lower()}{text[1:]}"


def axis_label(axis: str) -> str:
    return AXIS_LABELS.get(axis, axis)


def listed(items: Sequence[str]) -> str:
    """Items, at least one, as a list in a sentence: "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _fixed(value: float, decimals: int) -> str:
    return _signed(f"{round(value, decimals):,.{max(decimals, 0)}f}")


def _signed(text: str) -> str:
    """With the sign that a number has in print: a hyphen would be as short as in a word."""
    return text.replace("-", "−") if "e" not in text else text
