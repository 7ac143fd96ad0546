"""How long the sentences of the docs are: a line for each page, with the median and the 90th percentile of words.

    python docs/sentences.py          # a table
    python docs/sentences.py long     # also each sentence of more than 32 words

Sentences are those of prose and of tables' cells that have one; code, headings and links' addresses are none.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parent
MEDIAN, P90 = 20, 32
"""words that a page's sentences may have"""
LEAST = 4
"""words of a sentence: what has fewer is a label"""
FENCE = re.compile(r"^(`{3,}|\$\$).*?^\1[ \t]*$", re.M | re.S)
CODE = re.compile(r"`[^`]*`|\$[^$]+\$")
LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?])[\"')*]*\s+(?=[A-Z`*(\[\"0-9…])")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|cf|vs|al|Fig|No|approx)\.\s")


def sentences(text: str) -> list[str]:
    """Of a page in Markdown."""
    text = FENCE.sub("\n", text)
    found: list[str] = []
    for block in _blocks(text.splitlines()):
        plain = ABBREVIATION.sub(r"\1 ", LINK.sub(r"\1", CODE.sub("x", block)))
        found += [one.strip() for one in END.split(plain)]
    return [one for one in found if words(one) >= LEAST]


def words(sentence: str) -> int:
    return len(re.findall(r"[^\W_][\w'’.,%-]*", sentence))


def _blocks(lines: list[str]) -> Iterator[str]:
    """Paragraphs, items of lists and cells, each as one line."""
    block: list[str] = []
    for line in [*lines, ""]:
        bare = line.strip()
        if bare.startswith("|"):
            yield from (cell.strip() for cell in re.split(r"(?<!\\)\|", bare))
            bare = ""
        ends = not bare or line.startswith(("    ", "#", "!!!", "<")) or set(bare) <= {"-", "="}
        if ends or re.match(r"(?:[-*+]|\d+\.)\s", bare):
            yield " ".join(block)
            block = []
        if not ends:
            block.append(re.sub(r"^(?:[-*+]|\d+\.)\s+", "", bare))


def pages() -> list[Path]:
    return [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]


def lengths(page: Path) -> list[int]:
    return [words(one) for one in sentences(page.read_text(encoding="utf-8"))]


def main() -> None:
    print(f"{'page':<22} sentences  median  p90  (asked: {MEDIAN}, {P90})")
    for page in pages():
        found = lengths(page)
        if found:
            median, p90 = np.percentile(found, (50, 90))
            wrong = "  <-" if median > MEDIAN or p90 > P90 else ""
            print(f"{page.name:<22} {len(found):9,}  {median:6.0f}  {p90:3.0f}{wrong}")
        if "long" in sys.argv[1:]:
            for one in sentences(page.read_text(encoding="utf-8")):
                if words(one) > P90:
                    print(f"    {words(one)}: {one}")


if __name__ == "__main__":
    main()
