"""Tables as notebooks show them."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

MOST_LINES = 20


def paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"


def table(heads: Sequence[str], lines: Sequence[Sequence[str]], rest: str = "") -> str:
    """All lines, or the first where `rest` says where the others are."""
    most = MOST_LINES if rest else len(lines)
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(one)}</td>' for one in line)}</tr>" for line in lines[:most])
    more = paragraph(f"… {len(lines) - most:,} more{rest}") if len(lines) > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
