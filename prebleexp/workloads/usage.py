"""How long prompts and answers were, as providers, gateways, servers, benchmarks and simulators count them.

Who counts cached tokens apart from the prompt's, as Anthropic and Bedrock do, and who among them, as OpenAI, Gemini and
DeepSeek do, is told by the names that they have, and by sums: a part is not larger than its whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.checks import is_integer
from prebleexp.errors import InvalidInput, significant
from prebleexp.sim.types import Longs
from prebleexp.workloads.columns import Columns, matching, plain, set_column
from prebleexp.workloads.rows import Rows

OF_GEMINI = "tokens.cached"
"""of its command line, among `tokens.input`"""
INPUTS = (
    *("prompt_tokens", "input_tokens", "prompt_token_count", "input_token_count", "num_prompt_tokens"),
    *("num_input_tokens", "number_input_tokens", "n_prompt_tokens", "n_input_tokens"),
    *("native_tokens_prompt", "tokens_prompt"),
    *("token_count.prompt", "num_prefill_tokens", "prefill_tokens", "context_tokens", "request_tokens"),
    *("input_length", "input_len", "prompt_length", "prompt_len", "prompt_size", "input_toks", "prompt_toks"),
    *("input_sequence_length.value", "input_sequence_length", "isl", "tokens_in", "tokens_input"),
    *("usage_details.input", "usage.input", "query_length", "input_num_tokens", "genai_tokens_input"),
    *("llm_input_token", "llm_input_tokens", "uncached_input_tokens", "tokens.input"),
)
OUTPUTS = (
    *("completion_tokens", "output_tokens", "candidates_token_count", "completion_token_count"),
    *("output_token_count", "num_completion_tokens", "num_output_tokens", "number_output_tokens"),
    *("n_completion_tokens", "n_output_tokens", "num_generated_tokens", "token_count.completion"),
    *("native_tokens_completion", "tokens_completion"),
    *("generated_tokens", "response_tokens", "num_decode_tokens", "decode_tokens", "output_length", "output_len"),
    *("completion_length", "completion_len", "response_length", "generation_length", "token_size", "output_size"),
    *("output_toks", "completion_toks", "output_sequence_length.value", "output_sequence_length", "osl"),
    *("tokens_out", "tokens_output", "usage_details.output", "usage.output", "output_num_tokens"),
    *("genai_tokens_output", "llm_output_token", "llm_output_tokens", "num_generation_tokens", "tokens.output"),
)
APART = (
    *("cache_read_input_tokens", "cache_write_input_tokens", "cache_creation_input_tokens"),
    *("cache_read_input_token_count", "cache_write_input_token_count", "cache_creation_input_token_count"),
    *("input_cache_read", "input_cache_creation"),
)
"""Anthropic's, Bedrock's and Langfuse's: beside `input_tokens` they are not among these"""
WITHOUT_CACHED = ("input_tokens", "input_token_count", "input")
"""their names for these"""
DISJOINT = ("input", "uncached_input_tokens")
"""names for what is left behind cached tokens, whatever these are called: Langfuse's parts are disjoint"""
CACHED = (
    *("cache_read_input_tokens", "cached_tokens", "cached_content_token_count", "prompt_cache_hit_tokens"),
    *("cache_read_tokens", "cached_input_tokens", "cached_prompt_tokens", "num_cached_tokens", "input_cached_tokens"),
    *("cache_read.input_tokens", "native_tokens_cached", "prompt_details.cache_read", "tokens_cached"),
    *("cache_read_input_token_count", "cached_token_count", "input_cache_read", "cache_read_token_count"),
    *("usage.cache_read", "llm_cached_input_token", "llm_cached_input_tokens", OF_GEMINI, "tokens.cache.read"),
)
CREATED = (
    *("cache_creation_input_tokens", "cache_write_input_tokens", "cache_creation_tokens", "cache_write_tokens"),
    *("cache_creation.input_tokens", "cache_write.input_tokens", "prompt_details.cache_write"),
    *("cache_write_input_token_count", "cache_creation_input_token_count", "input_cache_creation"),
    *("usage.cache_write", "tokens.cache.write"),
)
AMONG = (
    *("details.cached_tokens", "cached_content_token_count", "cached_input_tokens", "input_cached_tokens"),
    *("cache_read.input_tokens", "cache_creation.input_tokens", "cache_write.input_tokens", "cached_tokens", OF_GEMINI),
)
"""those of OpenAI, Gemini, Vercel and OpenTelemetry, who have them among the prompt's"""
CREATED_PARTS = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
MISSED = "prompt_cache_miss_tokens"
THOUGHTS, TOOL_USE = ("thoughts_token_count", "tokens.thoughts"), "tool_use_prompt_token_count"
"""Gemini's, beside what the prompt and the candidates have"""
REASONING = (
    *("reasoning_tokens", "native_tokens_reasoning", "reasoning.output_tokens", "reasoning_output_tokens"),
    *("output_reasoning_tokens", "output_reasoning", "tokens.reasoning"),
)
PREFIXES = ("prefix_length", "prefix_len", "prefix_tokens", "shared_prefix_length", "shared_prefix_tokens")
TOTALS = ("total_tokens", "total_token_count", "token_count.total")
CACHE_COUNT = re.compile(r"cache.*(token|read|write|creat|hit|miss)|(token|read|written|hit).*cache")
"""in a field's name: it may count cached tokens"""
SUMS = re.compile(r"(^|_)(total|cumulative|accumulated|running)(_|$)")
"""in the name of an object: what it counts is of all requests so far"""
OF_TEXTS = ("prompt_length", "query_length", "completion_length", "response_length", "generation_length", "output_size")
"""names of lengths, of tokens or of letters"""
ALIKE = 1.1
"""counts that differ by no more say the same"""
MUCH = 1 / 3
"""of a prompt's tokens: whether so many more are of it matters"""


class Counts(NamedTuple):
    """Of n rows; −1: it is not said."""

    inputs: Longs
    """(n,) tokens of the whole prompt"""
    outputs: Longs
    """(n,) of all that was generated"""
    found_share: float
    """of all prompts' tokens, found in the recorder's cache"""
    input_says: str
    output_says: str
    cached_says: str
    doubts: tuple[str, ...]


class _Column(NamedTuple):
    names: tuple[str, ...]
    counts: Longs
    which: Longs
    """of `names`, where each row's is from; −1: from none"""
    doubts: tuple[str, ...]


def counts(rows: Rows, columns: Columns) -> Counts:
    """What every row says of its lengths. Raises InvalidInput, naming row and field, for what is not valid, contradicts
    itself, or is nowhere."""
    given = _coalesced(rows, _fields(rows, columns, "input", INPUTS))
    answers = _coalesced(rows, _fields(rows, columns, "output", OUTPUTS))
    cached, created = _coalesced(rows, _all(rows, CACHED)), _coalesced(rows, _all(rows, CREATED))
    parts = [rows.counts(name) for one in CREATED_PARTS for name in matching(rows, one)[:1]]
    if parts:
        whole = np.sum([np.maximum(one, 0) for one in parts], axis=0)
        created = created._replace(counts=np.where(created.counts < 0, whole, created.counts))
    read, wrote = np.maximum(cached.counts, 0), np.maximum(created.counts, 0)
    total = _coalesced(rows, _all(rows, TOTALS)).counts
    apart, doubts = _apart(rows, given, answers.counts, cached, created, total)
    doubts += [*given.doubts, *answers.doubts]
    inputs = np.where(apart & (given.counts >= 0), given.counts + read + wrote, given.counts)
    found = read
    missed = _coalesced(rows, matching(rows, MISSED)[:1]).counts
    if ((missed >= 0) & (given.counts < 0)).any():
        inputs = np.where(given.counts < 0, np.where(missed >= 0, missed + read, -1), inputs)
    tools = _coalesced(rows, matching(rows, TOOL_USE)[:1])
    inputs = np.where(inputs >= 0, inputs + np.maximum(tools.counts, 0), inputs)
    thoughts = _thoughts(rows, inputs, answers, total)
    outputs = np.where(thoughts.counts > 0, np.maximum(answers.counts, 0) + thoughts.counts, answers.counts)
    _check(rows, given, inputs, found, total, outputs)
    doubts += _short_of(total, inputs, outputs)
    doubts += _unread(rows, [*_all(rows, (*CACHED, *CREATED, *CREATED_PARTS, MISSED)), *given.names])
    doubts += [*_letters((*given.names, *answers.names)), *_sums(rows, given)]
    for name in _all(rows, PREFIXES):
        if (rows.counts(name) > 0).any():
            doubts.append(f"{name} is not used: prompts are {_words(given.names)}, whether or not it is among these")
    input_says = _words(given.names)
    if apart.any():
        beside = " + ".join(_words(one.names) for one in (cached, created) if one.names) or _words(CREATED_PARTS)
        where = "" if apart[given.counts >= 0].all() else f" (in {int(apart.sum()):,} of {len(rows):,} rows)"
        input_says = f"{input_says} + {beside}{where}"
    if tools.names and (tools.counts > 0).any():
        input_says += f" + {_words(tools.names)}"
    output_says = _words(answers.names) + (f" + {_words(thoughts.names)}" if (thoughts.counts > 0).any() else "")
    share = int(found.sum()) / max(int(np.maximum(inputs, 0).sum()), 1)
    cached_says = f"{_words(cached.names)}: {share:.1%} of the prompts' tokens" if cached.names else ""
    return Counts(inputs, outputs, share, input_says, output_says, cached_says, tuple(doubts))


def _apart(
    rows: Rows, given: _Column, answers: Longs, cached: _Column, created: _Column, total: Longs
) -> tuple[npt.NDArray[np.bool_], list[str]]:
    """(n,) whether a row's cached tokens are not among those of its prompt, of all rows that call that the same; and
    what about it is improbable. More of them than the whole, or a total that has them twice, say it; else names do."""
    beside = np.maximum(cached.counts, 0) + np.maximum(created.counts, 0)
    whole = np.where(total > 0, total - np.maximum(answers, 0), -1)
    named_apart = {tail(one) for column in (cached, created) for one in column.names} & set(APART)
    found, doubts = np.zeros(len(rows), np.bool_), list[str]()
    for number, name in enumerate(given.names):
        mine = (given.which == number) & (beside > 0)
        says_apart, says_among = mine & (whole == given.counts + beside), mine & (whole == given.counts)
        by_name = (tail(name) in DISJOINT and not matching(rows, OF_GEMINI)) or (
            bool(named_apart) and tail(name) in WITHOUT_CACHED and "gen_ai" not in name
        )
        if says_apart.any() and says_among.any():
            raise rows.wrong(
                int(np.argmax(says_among)),
                f"{name} has the cached tokens among its own, as the total says, and in row "
                f"{rows.number(int(np.argmax(says_apart)))} it has not; say one of these in a field of its own",
            )
        if (mine & (beside > given.counts)).any() or says_apart.any() or by_name:
            found |= given.which == number
            if says_among.any():
                doubts.append(f"the total is {name} and the answer, without the cached tokens; they are counted beside")
        elif (among := mine).any() and not says_among.any() and not _is_known(name, cached, created):
            more = float(beside[among].sum()) / float(given.counts[among].sum())
            if more > MUCH:
                doubts.append(
                    f"nothing says whether {name} has the cached tokens ({_words((*cached.names, *created.names))}) "
                    "among its own, and they are taken for such: if they are beside, prompts are "
                    f"{significant(1 + more)} times as long, and a field with the whole prompt is needed"
                )
    return found, doubts


def _is_known(name: str, cached: _Column, created: _Column) -> bool:
    """Whether who calls a prompt's count and that of cached tokens so has these among that."""
    if tail(name) not in WITHOUT_CACHED or "gen_ai" in name:
        return True
    return all(plain(one).endswith(AMONG) for one in (*cached.names, *created.names))


def _unread(rows: Rows, known: Sequence[str]) -> list[str]:
    """What to say of fields that seem to count cached tokens, under names that nobody is known to use."""
    found = []
    for name in rows.names:
        if name not in known and not _is_sum(name) and CACHE_COUNT.search(tail(name)):
            tokens = sum(one for one in rows.optional(name) if is_integer(one, 1))
            if tokens:
                found.append(f"{name} seems to count cached tokens ({tokens:,}), and is not used")
    return found


def _letters(names: Sequence[str]) -> list[str]:
    """A doubt about fields whose names do not say that they count tokens."""
    found = [name for name in names if tail(name) in OF_TEXTS]
    if not found:
        return []
    taken = f"{' and '.join(found)} {'is' if len(found) == 1 else 'are'} taken for tokens"
    return [f"{taken}: letters would be about four times as many; workload.columns={{input: …, output: …}} says which"]


def _sums(rows: Rows, given: _Column) -> list[str]:
    """Doubts about counts that are taken for sums over requests, and are not used."""
    found = []
    for name in (name for alias in INPUTS[:2] for name in matching(rows, alias) if _is_sum(name)):
        tokens, own = (int(np.maximum(one, 0).sum()) for one in (rows.counts(name), given.counts))
        if name not in given.names and tokens > ALIKE * own > 0:
            found.append(f"{name} has {significant(tokens / own)} times as many, and is taken for a sum over requests")
    return found


def _thoughts(rows: Rows, inputs: Longs, answers: _Column, total: Longs) -> _Column:
    """What was generated beside the answer: Gemini's thoughts, and Langfuse's; others' too, where there are more of
    them than of all, or where the total has them once more."""
    found = _coalesced(rows, _all(rows, THOUGHTS))
    if found.names:
        return found
    found = _coalesced(rows, _all(rows, REASONING))
    there = (found.counts > 0) & (answers.counts >= 0)
    once_more = there & (total > 0) & (total == inputs + answers.counts + found.counts)
    disjoint = any(tail(name) == "output" for name in answers.names)
    if (there & (found.counts > answers.counts)).any() or once_more.any() or disjoint:
        return found
    return _coalesced(rows, ())


def tail(name: str) -> str:
    """A field's plain name, without the objects that it is in."""
    return plain(name).rpartition(".")[2]


def _check(rows: Rows, given: _Column, inputs: Longs, cached: Longs, total: Longs, outputs: Longs) -> None:
    """Raises InvalidInput where a part is larger than its whole, or a sum too small for what it is of."""
    wrong = (inputs >= 0) & (cached > inputs)
    if wrong.any():
        row = int(np.argmax(wrong))
        name = given.names[given.which[row]] if given.which[row] >= 0 else "the prompt"
        raise rows.wrong(row, f"{name}={inputs[row]} is not valid; {cached[row]} cached tokens are among them")
    wrong = (total >= 0) & (inputs >= 0) & (outputs >= 0) & (total > 0) & (total * 2 < given.counts + outputs)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise rows.wrong(
            row,
            f"total_tokens={total[row]} is not valid; prompt and answer are {given.counts[row]} + {outputs[row]}: say "
            "which fields are meant, with workload.columns={input: …, output: …}",
        )


def _short_of(total: Longs, inputs: Longs, outputs: Longs) -> list[str]:
    """A doubt, if totals have more tokens than prompts and answers."""
    said = (total > 0) & (inputs >= 0) & (outputs >= 0)
    whole, both = int(total[said].sum()), int((inputs + outputs)[said].sum())
    if whole <= ALIKE * both:
        return []
    return [
        f"the totals are {whole:,} tokens, and prompts and answers {both:,}: if these lack something, say which fields "
        "have all of it, with workload.columns={input: …, output: …}"
    ]


def _fields(rows: Rows, columns: Columns, role: str, aliases: Sequence[str]) -> list[str]:
    """The field that was set; else all that are usual, each row having one of them."""
    name = set_column(rows, columns, role)
    return [name] if name is not None else _all(rows, aliases)


def _all(rows: Rows, aliases: Sequence[str]) -> list[str]:
    names = dict.fromkeys(name for alias in aliases for name in _nearest(matching(rows, alias), alias))
    return list(names)


def _nearest(names: Sequence[str], alias: str) -> list[str]:
    """Of fields that are so called those in the fewest objects, and none that is a part of another count."""
    whole = [name for name in names if not (alias in (*INPUTS, *OUTPUTS) and _is_part(name, alias))]
    whole = [name for name in whole if not _is_sum(name)] or whole
    return [name for name in whole if name.count(".") == whole[0].count(".")]


def _is_sum(name: str) -> bool:
    """Whether an object that it is in is of all requests so far, as `total_token_usage`."""
    return any(SUMS.search(one) for one in plain(name).split(".")[:-1])


def _is_part(name: str, alias: str) -> bool:
    """Whether it counts a part of what the alias means, as `cache_read.input_tokens`, or what a tool used."""
    within = plain(name).removesuffix(alias).split(".")
    return any(one.startswith(("cache", "reasoning", "tool_")) or one.endswith("details") for one in within)


def _coalesced(rows: Rows, names: Sequence[str]) -> _Column:
    """Of every row the first of these that it has."""
    found, which = np.full(len(rows), -1, np.int64), np.full(len(rows), -1, np.int64)
    used, doubts = list[str](), list[str]()
    for name in names:
        column = rows.counts(name)
        both = (found > 0) & (column > 0)
        ratio = float(found[both].sum()) / float(column[both].sum()) if both.any() else 1.0
        if not 1 / ALIKE < ratio < ALIKE:
            more = f"{name} has {significant(1 / ratio)} times as many"
            doubts.append(f"{used[0]} is taken, and {more}; workload.columns= says which")
        new = (found < 0) & (column >= 0)
        if new.any():
            which[new], found = len(used), np.where(new, column, found)
            used.append(name)
    return _Column(tuple(used), found, which, tuple(doubts))


def _words(names: Sequence[str]) -> str:
    return " or ".join(names) if names else "nothing"


def demand(rows: Rows, column: Longs, role: str, aliases: Sequence[str], least: int) -> Longs:
    """The column, of which every row must have one. Raises InvalidInput, naming the first that has none."""
    wrong = column < least
    if not wrong.any():
        return column
    row = int(np.argmax(wrong))
    if (column < 0).all():
        raise InvalidInput(
            f"{rows.path}: there is no field {aliases[0]}, nor another for the {role}'s length; there are "
            f"{', '.join(list(rows.names)[:20])}: say which, with workload.columns={{{role}: …}}"
        )
    what = "there is none" if column[row] < 0 else f"it is {column[row]}"
    raise rows.wrong(
        row,
        f"the {role}'s length is not valid: {what}; it must be an integer from {least} on. A request that failed has a "
        "status of 400 or more, or an error, and is left out",
    )
