"""How often the core and its engines ask which feature is on: a number that may only fall.

A question is a line of compiled code, or of what Python does while a run runs, whose condition reads what a run has or
has not: a fact of pools, rules or an engine's settings that says which feature is on, or the length of a list that
belongs to one. Conditions are those of `if`, `while`, ternaries and filters, operands of `and`, `or` and `not`, and
comparisons. Not counted: where a run is put together, or what came of it is read; engines with a loop of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

MOST = 24
FACTS = re.compile(
    r"([\w.]+\.)?pools\.(protocol|decider|send|both_at_arrival|first|legs|whole)"
    r"|([\w.]+\.)?rules\.(retry|resume|singly)"
    r"|([\w.]+\.)?settings\.(tiered|drafts)"
    r"|len\(([\w.]+\.)?(tiers|moves)\.\w+\)"
    r"|len\(([\w.]+\.)?(routers|patience_s|fetches|books)\)"
    r"|routers (==|!=|>|<) \w+"
)
PUT_TOGETHER = {"given", "kind", "host", "world", "outcome", "compatibility", "rooms", "stepped", "checks"}
FROZEN = {"released", "splitwise", "dynamo_replay"}
PLACES = [*(ROOT / "prebleexp" / "sim").glob("*.py"), *(ROOT / "prebleexp" / "engines").rglob("*.py")]


def conditions(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.BoolOp):
            yield from node.values
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node.operand
        elif isinstance(node, ast.Compare):
            yield node


def questions(file: Path) -> set[int]:
    """Lines of a file on which a condition reads such a fact."""
    read = {one for condition in conditions(ast.parse(file.read_text())) for one in ast.walk(condition)}
    facts = (one for one in read if isinstance(one, ast.Attribute | ast.Call | ast.Compare))
    return {one.lineno for one in facts if FACTS.fullmatch(ast.unparse(one))}


def counted() -> dict[str, int]:
    files = [one for one in PLACES if one.stem not in PUT_TOGETHER and not FROZEN & {*one.parts}]
    found = {str(one.relative_to(ROOT)): len(questions(one)) for one in sorted(files)}
    return {name: count for name, count in found.items() if count}


def test_which_feature_is_on_is_asked_no_more_often_than_it_was() -> None:
    found = counted()
    print(f"{sum(found.values())} questions: {found}")
    assert sum(found.values()) <= MOST, f"{found}: what is off may be a plug, or a list, with nothing in it"
    assert sum(found.values()) == MOST, "MOST may be lower now"
