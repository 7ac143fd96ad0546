"""Two thousand files, right, odd and wrong, whose truth is known: nothing is off by a factor in silence."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prebleexp.errors import InvalidInput
from tests.support.odd_files import made
from tests.support.odd_files.truth import Truth

FILES = 2000
FACTOR = 1.5
PLACE = re.compile(r"row \d|workload\.|field|_lens|column|request_rate|there are no requests|not an? .* file")
"""what of the file is named"""
WAY_OUT = re.compile(
    r"must (be|hold)|; (say|take|save)|say which|workload\.|there are no requests|file that can be read"
)


def off(trace: Any, of: Truth) -> str:
    """What is off by a factor: of the number of requests, the span, prompts or answers."""
    span = of.start_s[-1] - of.start_s[0]
    pairs = {
        "count": (len(trace), len(of.prompt)),
        "time": (trace.span_s, span),
        "prompts": (trace.prompt_tokens.sum(), sum(of.prompt)),
        "answers": (trace.output_tokens.sum(), sum(of.output)),
    }
    for name, (found, true) in pairs.items():
        if not 1 / FACTOR <= (found + 1e-9) / (true + 1e-9) <= FACTOR:
            return name
    return ""


def what_came_of(seed: int, path: Path) -> str:
    """read, said or refused. Fails where nothing was said, or a file was refused that is in order."""
    data, of, called = made(seed)
    path.write_bytes(data)
    source = of.kind(str(path), load="recorded", **of.settings)
    try:
        trace = source.whole
    except InvalidInput as error:
        said = str(error)
        assert said.startswith(str(path)), f"{called}: {said}"
        assert "\n" not in said, f"{called}: {said}"
        assert of.wrong or of.strange, f"{called}: {said}"
        assert PLACE.search(said), f"{called}: {said}"
        assert WAY_OUT.search(said), f"{called}: {said}"
        return "refused"
    wrong, understood = off(trace, of), source.understood
    if not wrong:
        return "read"
    line, doubts = understood.line, understood.doubts
    taken = ", as the format has them" in line or "assumed" in line
    if of.untold and wrong == "time":
        assert doubts or taken, f"{called}: {wrong}: {line}"
    else:
        assert of.wrong or of.strange, f"{called}: {wrong}: {line}"
        assert doubts or trace.reading.left_out, f"{called}: {wrong}: {line}"
    return "said"


@pytest.mark.parametrize("seed", range(0, FILES, 10))
def test_nothing_is_off_by_a_factor_in_silence(seed: int, tmp_path: Path) -> None:
    what_came_of(seed, tmp_path / "log")


@pytest.mark.slow
def test_of_two_thousand_files_none_is_read_wrongly_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    came, silent = Counter[str](), list[str]()
    for seed in range(FILES):
        try:
            came[what_came_of(seed, tmp_path / "log")] += 1
        except AssertionError as error:
            silent.append(f"{seed}: {str(error).splitlines()[0]}")
    with capsys.disabled():
        print(f"\n{FILES:,} files: {', '.join(f'{n:,} {how}' for how, n in came.items())}, {len(silent)} in silence")
    assert not silent, "\n".join(silent)
