"""The page of a plan in a real browser: fits every width, is read by everyone, and says each thing once."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from prebleexp.__main__ import main
from tests.support.pages.checks import answer_on_top, fits_and_everyone_can_read_it
from tests.support.pages.chromium import evaluate

WIDTHS = (360, 768, 1920)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plan")
    own = [f"cache_dir={folder / 'cache'}", f"reports_dir={folder / 'reports'}"]
    made = ["engine=vllm", "hardware/gpu=h100", "hardware/model=llama_3_1_8b", "hardware.tensor_parallel=2"]
    promise = ["slo.ttft_s=0.3", "slo.tpot_s=30ms", "slo.target=0.9"]
    few = ["requests=300", "most_requests=300", "seeds=2", "most_seeds=2", "tol=0.3"]
    assert main(["plan", "rps=600", "policy=lor,e2", *made, *promise, *few, *own]) == 0
    return next((folder / "reports").glob("plan-*/index.html"))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_everyone_can_read_it(browser: Chrome, page: Path, width: int, scheme: str) -> None:
    fits_and_everyone_can_read_it(browser, page, width, scheme)


def test_the_answer_stands_above_its_bars_and_the_caveats_are_in_one_box(browser: Chrome, page: Path) -> None:
    answer_on_top(browser, page)
    assert evaluate(browser, "return document.querySelectorAll('.caveats').length") == 1
    said = evaluate(browser, "return [...document.querySelectorAll('.caveats li')].map((one) => one.textContent)")
    assert len(said) == len(set(said)) >= 1
    bars = evaluate(browser, "return document.querySelector('figure .panel svg').textContent")
    assert "lor" in bars
    assert "e2" in bars
