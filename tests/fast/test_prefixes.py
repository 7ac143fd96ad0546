"""Logs that say by a name of theirs, as an app's or a template's, which prompts begin with the same system prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.described import describe
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Workload
from prebleexp.workloads.mooncake import Mooncake
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.prefixes import CURE
from prebleexp.workloads.request_log import RequestLog
from tests.support.places import ROOT
from tests.support.recordings.routers import common

OUTPUT = OutputLength((10,), (1.0,))
NAMED = {"columns": {"prefix": "app"}}
SAID = {**NAMED, "prefix_tokens": 200}


def log(path: Path, *rows: Mapping[str, Any], **settings: Any) -> RequestLog:
    file = path / "log.jsonl"
    of = {"output_tokens": 10}
    text = (json.dumps({"arrival_time": at, **of, **row}) for at, row in enumerate(rows))
    file.write_text("\n".join(text) + "\n")
    return RequestLog(str(file), load="recorded", time_unit="s", **settings)


def drawn(source: RequestLog) -> Workload:
    return source.draw(rps=1, duration_s=1, seed=0, output_length=OUTPUT)


def prompts(source: RequestLog) -> list[list[tuple[int, int]]]:
    """Of each request, ids and tokens of its segments."""
    of = drawn(source)
    ids, tokens = of.segment_ids.tolist(), of.segment_tokens.tolist()
    ends = of.segment_offsets.tolist()
    return [list(zip(ids[start:end], tokens[start:end], strict=True)) for start, end in pairwise(ends)]


def row(app: object, tokens: int, **more: Any) -> dict[str, Any]:
    return {"app": app, "input_tokens": tokens, **more}


def test_prompts_of_one_name_share_its_prefix_and_nothing_else(tmp_path: Path) -> None:
    source = log(tmp_path, row("a", 500), row("b", 400), row("a", 300), row(None, 250), row("a", 200), **SAID)
    first, other, second, none, short = prompts(source)
    assert common(first, second) == 200
    assert [common(first, one) for one in (other, none, short)] == [0, 0, 0]
    np.testing.assert_array_equal(drawn(source).prompt_tokens, [500, 400, 300, 250, 200])
    assert dict(source.understood.facts)["prefix"] == "app, 2 prefixes of 200 tokens, none in 1 of 5 rows"
    assert "1 prompts are no longer than their prefix by app, and are taken for others" in source.understood.doubts
    assert not source.understood.unshared


def test_a_field_says_how_long_each_prefix_is(tmp_path: Path) -> None:
    columns = {"prefix": "app", "prefix_tokens": "head"}
    rows = [row("a", 500, head=100), row(7, 500, head=300), row("a", 400, head=100), row(7, 400, head=300)]
    source = log(tmp_path, *rows, columns=columns)
    a, b, c, d = prompts(source)
    assert (common(a, c), common(b, d), common(a, b)) == (100, 300, 0)
    assert dict(source.understood.facts)["prefix"] == "app, 2 prefixes of 100 to 300 tokens"
    twice = log(tmp_path, row("a", 500, head=100), row("a", 500, head=101), columns=columns)
    with pytest.raises(InvalidInput, match="row 2: head=101 is not valid; app=a has 100 in an earlier row"):
        drawn(twice)


def test_turns_go_on_behind_the_prefix_unless_it_is_another(tmp_path: Path) -> None:
    rows = [row(app, tokens, session_id="s") for app, tokens in (("a", 300), ("a", 400), ("b", 500), ("a", 600))]
    rows.append(row("a", 700, session_id="t"))
    source = log(tmp_path, *rows, **SAID, growth="accumulate")
    first, second, other, back, stranger = prompts(source)
    assert common(first, second) == 300
    assert common(second, back) == 400
    assert common(back, stranger) == common(first, stranger) == 200
    assert common(second, other) == 0
    says = "app, 2 prefixes of 200 tokens; beside them, assumed: 2 of 2 later turns begin with"
    assert dict(source.understood.facts)["prefix"].startswith(says)


def test_names_come_before_messages_and_tokens_ids(tmp_path: Path) -> None:
    said = {"messages": [{"role": "user", "content": "hello"}]}
    first, second = prompts(log(tmp_path, row("a", 500, **said), row("a", 300, **said), **SAID))
    assert common(first, second) == 200
    ids = {"prompt_token_ids": list(range(300))}
    first, second = prompts(log(tmp_path, row("a", 300, **ids), row("b", 300, **ids), **SAID))
    assert common(first, second) == 0


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        (NAMED, "app says whose prefixes are the same; .* are not there: say one of them"),
        ({"prefix_tokens": 200}, "nothing says which prompts have it: name the field"),
        ({"columns": {"prefix": "app", "prefix_tokens": "head"}, "prefix_tokens": 200}, "are both there: leave one"),
        ({"columns": {"prefix": "nowhere"}, "prefix_tokens": 200}, "prefix=nowhere is not valid; there are"),
        ({**SAID, "block_tokens": 16}, "not valid with hashes or workload.block_tokens"),
        ({**NAMED, "prefix_tokens": 0}, "workload.prefix_tokens=0 is not valid; it must be null or an integer"),
    ],
)
def test_what_does_not_say_a_prefix_is_refused(settings: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=match):
        drawn(log(tmp_path, row("a", 500, head=100), **settings))


def test_other_traces_refuse_a_prefix_and_name_who_reads_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="take workload=request_log"):
        Mooncake(str(tmp_path / "trace.jsonl"), columns={"prefix": "app"})


def test_a_prefix_does_not_silence_what_sessions_and_the_recorders_cache_say(tmp_path: Path) -> None:
    """With `prefix` alone a log of 485 sessions asked for twice as many GPUs, without a word."""

    def unshared(cached: int | None, **settings: Any) -> str:
        usage = {} if cached is None else {"cached_tokens": cached}
        rows = [row("a", 1000 * (at + 1), session_id="s", **usage) for at in range(4)]
        return log(tmp_path, *rows, **SAID, **settings).understood.unshared

    grows = "; workload.growth=accumulate has a turn begin with the prompt and the answer before it"
    assert unshared(900) == (
        "here prompts share nothing but prefixes, 6.0% of their tokens, though the recorder's cache found 36.0% and 1 "
        f"session of several turns is there: caches, and routers that follow prefixes, have little to find{grows}"
    )
    assert unshared(100).startswith("here prompts share nothing but prefixes, though 1 session of several turns is ")
    assert unshared(None) == unshared(100)
    assert not unshared(900, growth="accumulate")


def test_far_less_shared_than_the_recorders_cache_found_is_doubted_with_growth_too(tmp_path: Path) -> None:
    """One of eight turns goes on, so that at most an eighth of the tokens is there again."""

    def unshared(cached: int, **settings: Any) -> str:
        rows = [row("a", 1000 + at, session_id=str(max(at, 1)), cached_tokens=cached) for at in range(8)]
        return log(tmp_path, *rows, growth="accumulate", **settings).understood.unshared

    assert unshared(900).startswith("here prompts share little with earlier ones, 12.")
    assert unshared(900).endswith(f"have little to find; {CURE}")
    assert not unshared(200), "the recorder's cache found a fifth, which is no more than twice as much"
    assert not unshared(900, **SAID | {"prefix_tokens": 900})


def test_the_share_is_the_descriptions_where_answers_are_no_prompts(tmp_path: Path) -> None:
    source = log(tmp_path, *(row("ab"[at % 2], 700 + at, cached_tokens=690) for at in range(9)), **SAID)
    assert f", {describe(drawn(source)).unlimited:.1%} of their tokens, though " in source.understood.unshared


def test_an_answer_that_the_next_prompt_has_counts_as_shared(tmp_path: Path) -> None:
    rows = [row("a", 20, session_id="s", output_tokens=900), row("a", 1000, session_id="s", cached_tokens=920)]
    assert not log(tmp_path, *rows, growth="accumulate").understood.unshared


def test_the_guide_names_growth_where_it_tells_of_prefixes() -> None:
    guide = (ROOT / "docs" / "guide_plan.md").read_text(encoding="utf-8")
    (paragraph,) = [one for one in guide.split("\n\n") if "columns={prefix: app}" in one]
    assert "workload.growth=accumulate" in paragraph
    assert "`! here prompts share …`" in paragraph
