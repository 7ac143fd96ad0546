"""Files of the kinds that people asked about in public (in data of our own): each is read for what it is. Cases without
a file are tested where they belong: D6 in hardware_fit, D11 in gpu_states, D13 in vllm_bench, D14 in changing_loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.commands import ladder_arms
from prebleexp.errors import significant
from prebleexp.sim.types import Workload
from prebleexp.vllm_bench import compared
from prebleexp.workloads.agents import Agents
from prebleexp.workloads.bench_log import BenchLog
from prebleexp.workloads.mooncake import Mooncake
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.request_log import RequestLog
from tests.support.places import ROOT

FOLDER = ROOT / "tests" / "data" / "cases"
UNASKED = OutputLength((7,), (1.0,))
H100 = ("gpus=1", "hardware/gpu=h100", "hardware/model=llama_3_1_8b")


def source(kind: type[Replayed], name: str, **settings: object) -> Replayed:
    return kind(str(FOLDER / name), load="recorded", **settings)


def drawn(kind: type[Replayed], name: str, **settings: object) -> Workload:
    return source(kind, name, **settings).draw(rps=1, duration_s=1, seed=0, output_length=UNASKED)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command says, that has to end so."""
    monkeypatch.chdir(tmp_path)

    def command(*words: str, code: int = 0) -> str:
        assert main(words) == code
        printed = capsys.readouterr()
        return printed.out if code == 0 else printed.err

    return command


def test_every_file_is_tried() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [one.name for one in FOLDER.iterdir() if one.name not in text and one.stem not in text] == []


def test_d1_milliseconds_are_not_seconds() -> None:
    log = source(RequestLog, "log_epoch_ms.jsonl")
    assert log.whole.span_s == pytest.approx(1.75)
    assert "milliseconds" in log.understood.line
    seconds = source(Mooncake, "mooncake_seconds.jsonl")
    assert any("5,714 requests/s" in one and "workload.time_unit=" in one for one in seconds.understood.doubts)
    assert [significant(one) for one in (3700.4, 999.7, 1e6, 99.66, 0.012345)] == [
        *("3,700", "1,000", "1,000,000", "99.7", "0.0123"),
    ]
    assert source(Mooncake, "mooncake_seconds.jsonl", time_unit="s").whole.span_s == pytest.approx(1.4)


def test_d2_cached_tokens_that_are_counted_apart_are_the_prompts() -> None:
    assert drawn(RequestLog, "usage_cached_apart.jsonl").prompt_tokens.tolist() == [9331, 9464]


def test_d3_a_requests_own_count_is_its_length() -> None:
    made = drawn(RequestLog, "messages_with_tools.jsonl")
    assert made.prompt_tokens.tolist() == [4900, 6950]
    first, second = (made.segment_ids[made.segment_offsets[i] : made.segment_offsets[i + 1]].tolist() for i in range(2))
    shared = sum(made.segment_tokens[made.segment_offsets[0] + i] for i, one in enumerate(first) if one in second)
    print(f"{shared:,} of 11,850 tokens can be found; the recorder found 4,896")
    assert shared == pytest.approx(4896, rel=0.01)


def test_d4_a_closed_loop_is_no_burst() -> None:
    closed = source(BenchLog, "vllm_closed_loop_no_starts.json").whole
    assert closed.closed
    assert len(np.unique(closed.session)) == 16
    assert source(BenchLog, "start_timestamps.json").whole.start_s.tolist() == [0, 1, 2, 3]


def test_d5_a_cap_that_was_never_reached_is_no_number_of_clients() -> None:
    """Rates are a ladder: it is simulated as it was served, and not taken for closed loops."""
    assert ladder_arms.takes(FOLDER / "bench_rate_and_cap")
    for path in sorted((FOLDER / "bench_rate_and_cap").iterdir()):
        log = json.loads(path.read_text())
        assert log["max_concurrency"] == 256
        settings = compared.read(str(path)).settings
        assert settings["workload.request_rate"] == log["request_rate"]


def test_d7_a_rate_of_a_recorded_load_does_nothing_and_is_refused(told: Callable[..., str]) -> None:
    load = ("workload=request_log", f"workload.path={FOLDER / 'two_hundred_in_20s.jsonl'}", "workload.load=recorded")
    assert "rps" in told("-m", "rps=1,4,16", *load, *H100, "report=none", code=2)
    one = json.loads(told(*load, *H100, "output=json"))[0]
    assert one["offered_per_s"] == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("name", ["agents_absolute_one.jsonl", "agents_relative_one.jsonl"])
def test_d8_a_sub_agent_starts_when_it_started(name: str) -> None:
    links = Agents(str(FOLDER / name)).whole.links
    assert links is not None
    assert {5.0, 55.0} <= set(np.round(links.delay_s, 3).tolist())


@pytest.mark.parametrize(
    ("name", "prompts", "outputs", "starts"),
    [
        ("vidur_lengths.csv", [380, 401, 870], [41, 110, 52], [0, 4.2, 4.6]),
        ("llmservingsim_flat.jsonl", [1200, 700], [90, 50], [0, 0.264]),
        ("log_as_json_array.json", [100, 90], [10, 12], [0, 0.7]),
        ("log_with_failed_rows.jsonl", [100, 100], [10, 10], [0, 1]),
        ("aiperf_profile_export.jsonl", [550, 551], [40, 41], [0, 0.25]),
    ],
)
def test_d9_columns_of_other_tools_have_other_names(
    name: str, prompts: list[int], outputs: list[int], starts: list[float]
) -> None:
    found = source(RequestLog, name).whole
    assert found.prompt_tokens[: len(prompts)].tolist() == prompts
    assert found.output_tokens[: len(outputs)].tolist() == outputs
    assert found.start_s[: len(starts)].tolist() == pytest.approx(starts)


def test_d9_a_sessions_requests_wait_for_their_tools() -> None:
    found = source(RequestLog, "sessions_jsonl_agentic.jsonl").whole
    assert found.prompt_tokens.tolist() == [1470, 1580]
    assert found.links is not None
    assert found.links.delay_s.tolist() == pytest.approx([0, 0.127])


def test_d10_blocks_of_64_no_hashes_and_any_order() -> None:
    made = drawn(Mooncake, "mooncake_block_64.jsonl")
    assert made.prompt_tokens.tolist() == [256, 320]
    alone = drawn(Mooncake, "mooncake_no_hashes.jsonl")
    assert alone.prompt_tokens.tolist() == [655, 672]
    assert len(set(alone.segment_ids.tolist())) == 2
    assert source(Mooncake, "mooncake_unsorted.jsonl").whole.start_s.tolist() == pytest.approx([0, 0.50025])


def test_d12_five_seeds_of_a_recording_are_one_run(told: Callable[..., str]) -> None:
    load = ("workload=request_log", f"workload.path={FOLDER / 'two_hundred_in_20s.jsonl'}", "workload.load=recorded")
    rows = json.loads(told(*load, *H100, "policy=lor", "replications=5", "output=json"))
    assert len(rows) == 1
