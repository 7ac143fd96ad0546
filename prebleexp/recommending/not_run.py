"""Designs of which nothing was run, in few lines: those that are left out for one reason share a line."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from prebleexp.errors import DoesNotFit, TooLittleMemory
from prebleexp.hardware.base import Hardware
from prebleexp.recommending.bounds import TooSlow

SHOWN = 4
"""places a line names"""


@dataclass(frozen=True)
class LeftOut:
    """Of which nothing was run, and why."""

    designs: int
    said: str
    """which, and why, with its numbers"""
    reason: str
    """that others are left out for as well"""
    model: str
    """in its precision"""
    place: str = ""
    """the GPUs, with what there is of numbers; empty: `model` names them"""
    precisions: Sequence[str] = ()
    """in which it would fit"""
    kind: str = ""
    """of GPU"""


def unfit(lines: Sequence[str], why: DoesNotFit, designs: int) -> LeftOut:
    """What cannot be served at all, by its `lines`."""
    of = {key: value for key, _, value in (line.partition("=") for line in lines)}
    kind = of["hardware/gpu"]
    if not isinstance(why, TooLittleMemory):
        model, gpus = of.get("hardware/model", ""), f"{of['hardware.tensor_parallel']} {kind.upper()}"
        return LeftOut(designs, f"{' '.join(lines)}: {why}", str(why), model or "this model", gpus, kind=kind)
    return LeftOut(designs, str(why), "the weights do not fit", why.model, why.gpus.upper(), why.precisions, kind)


def slow(hardware: Hardware, why: TooSlow, designs: int) -> LeftOut:
    """What is too slow for one request."""
    model, gpus = _of(hardware)
    reason = f"one request alone takes more than the promised {why.promised_ms} ms for a token"
    place = f"{gpus.upper()} ({why.alone_ms} ms)"
    return LeftOut(designs, f"{model} on {gpus}: {why}", reason, model, place, kind=hardware.gpu_name)


def short(hardware: Hardware, least: int, most: int, designs: int) -> LeftOut:
    """What takes more GPUs than can be had."""
    model, gpus = _of(hardware)
    said = f"{model} on {gpus}: it takes {least:,} {hardware.gpu_name.upper()} at least, and {most:,} can be had"
    reason = "they take more GPUs than can be had"
    return LeftOut(designs, said, reason, model, f"{gpus.upper()} ({least:,} of {most:,})", kind=hardware.gpu_name)


def _of(hardware: Hardware) -> tuple[str, str]:
    """The model in its precision, and its GPUs; the engine's name is the same for all."""
    model, _, gpus = hardware.title.partition(",")[0].partition(" on ")
    return model, gpus


@dataclass
class _Group:
    designs: int = 0
    at: dict[str, dict[str, None]] = field(default_factory=dict)
    """of each model its places"""
    cures: dict[str, None] = field(default_factory=dict)
    """precisions that would fit"""


def lines(left_out: Sequence[LeftOut], named: Collection[str] = ()) -> list[str]:
    """One sentence, without its stop, for each kind of reason. `named`: precisions that were chosen."""
    groups: dict[str, _Group] = {}
    for one in left_out:
        group = groups.setdefault(one.reason, _Group())
        group.designs += one.designs
        group.at.setdefault(one.model, {})[one.place] = None
        group.cures |= dict.fromkeys(one.precisions)
    return [_line(reason, group, named) for reason, group in groups.items()]


def _line(reason: str, group: _Group, named: Collection[str]) -> str:
    said = [f"{model} on {_some(list(places))}" if any(places) else model for model, places in group.at.items()]
    line = f"{group.designs:,} designs were not run, as {reason}: {'; '.join(said)}"
    tried = {*named, *(model.rpartition(" in ")[2] for model in group.at)}
    cures = [one for one in group.cures if one not in tried]
    if cures:
        line += f"; on some of them hardware.precision={' or '.join(cures)} fits, which is tried if you name it"
    return line


def _some(places: Sequence[str]) -> str:
    more = [f"{len(places) - SHOWN:,} more"] if len(places) > SHOWN + 1 else []
    shown = [*places[: SHOWN if more else len(places)], *more]
    return f"{', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else shown[0]
