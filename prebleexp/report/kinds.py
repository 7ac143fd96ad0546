"""What routers go by, as lines are named: "by session: SGLang manual"."""

from __future__ import annotations

from prebleexp.report.summary import Value
from prebleexp.report.wording import plain

SESSION, PREFIX, LOAD = KINDS = ("by session", "by prefix", "by load")


def kind_of(line: Value) -> str:
    return plain(line).partition(": ")[0]


def name_of(line: Value) -> str:
    return plain(line).partition(": ")[2]
