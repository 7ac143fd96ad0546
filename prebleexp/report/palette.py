"""Which colour and marker a line has: the same policy has the same one in every panel, figure and report.

The hues keep apart under the common colour-vision deficiencies (after Okabe and Ito) and every one has its own marker,
so nothing is told by colour alone. Each has a tone for light and one for dark paper, at least 4.5 : 1 against it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prebleexp.report.markers import outline


@dataclass(frozen=True)
class Style:
    """A line's look. `light` also stands for the CSS variable in a drawing; `dashed` from the ninth line on."""

    name: str
    light: str
    dark: str
    marker: str
    dashed: bool = False

    @property
    def outline(self) -> str:
        """The marker as a path, 2 wide and centred on 0."""
        return outline(self.marker)


STYLES = (
    Style("blue", "#0b6bb0", "#5eb3f2", "o"),
    Style("vermilion", "#c2440a", "#ff8d57", "s"),
    Style("green", "#00785a", "#3fc79a", "^"),
    Style("purple", "#a0448a", "#e394cd", "D"),
    Style("amber", "#946500", "#e0b03a", "v"),
    Style("grey", "#666560", "#b0afa8", "X"),
    Style("brown", "#7a4a2b", "#cf9e75", "P"),
    Style("slate", "#3d4f7d", "#a3b4e3", "p"),
)
OF_POLICY = {
    "lor": 0,
    "LOR": 0,
    "e2": 1,
    "PREBLE": 1,
    "length-aware PREBLE": 2,
    "e2_released": 3,
    "round_robin": 4,
    "round robin": 4,
    "random": 5,
    "least tokens, lengths known": 6,
    "lor_tokens": 6,
    "least work, lengths known": 7,
    "least_work": 7,
}
"""names of which a figure mostly has only one share a look; where it has several, the first here gets it"""
INK = ("#4e4d49", "figure-ink")
GRID = ("#e3e1db", "figure-grid")


def styles(names: Iterable[str], first: Iterable[str] = ()) -> dict[str, Style]:
    """A style for each name. One that `OF_POLICY` does not know starts looking for a free one where its checksum says,
    so that it mostly keeps its colour whichever other names are there; those of `first` surely do."""
    taken: dict[str, int] = {}
    for some in (first, names):
        _take(sorted(set(some)), taken)
    return {name: _style(slot) for name, slot in taken.items()}


def _take(names: Sequence[str], taken: dict[str, int]) -> None:
    """Add a slot for each of these names, of which those that `OF_POLICY` knows come first."""
    known: dict[str, int] = {}
    for name, slot in OF_POLICY.items():
        if name in names and name not in taken and slot not in {**taken, **known}.values():
            known[name] = slot
    taken.update(sorted(known.items()))  # legends go by the alphabet
    reserved = set(OF_POLICY.values())
    for name in names:
        if name in taken:
            continue
        start = zlib.crc32(name.encode())
        order = [(start + step) % len(STYLES) for step in range(len(STYLES))]
        free = [slot for slot in order if slot not in taken.values()]
        best = [slot for slot in free if slot not in reserved] or free
        taken[name] = best[0] if best else len(taken)


def _style(slot: int) -> Style:
    style = STYLES[slot % len(STYLES)]
    return style if slot < len(STYLES) else Style(style.name, style.light, style.dark, style.marker, dashed=True)


def themed(svg: str) -> str:
    """The drawing with CSS variables for its colours; on its own, without a style sheet, it keeps the light ones."""
    for colour, name in (INK, GRID, *((style.light, style.name) for style in STYLES)):
        svg = svg.replace(colour, f"var(--{name}, {colour})")
    return svg


def in_light_colours(svg: str) -> str:
    """A themed drawing for paper, with colours in place of the variables, which not every program knows."""
    return re.sub(r"var\(--[\w-]+, (#[0-9a-f]{6})\)", r"\1", svg)
