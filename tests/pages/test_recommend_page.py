"""The page of a recommendation in a real browser: fits every width, is read by everyone, and has what to deploy."""

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
    folder = tmp_path_factory.mktemp("recommend")
    own = [f"cache_dir={folder / 'cache'}", f"reports_dir={folder / 'reports'}", "sweep.name=best"]
    made = ["hardware/model=llama_3_1_8b", "hardware.tensor_parallel=1,2", "policy=lor", "engine.max_num_seqs=null"]
    promise = ["slo.ttft_s=0.3", "slo.tpot_s=30ms", "slo.target=0.9", "price_per_gpu_hour={h100: 2.5, h200: 3.5}"]
    few = ["requests=300", "seeds=2", "most_seeds=2", "tol=0.3", "most_gpus=4", "whole=true"]
    assert main(["recommend", "rps=20", *made, *promise, *few, *own]) == 0
    return folder / "reports" / "best" / "index.html"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_everyone_can_read_it(browser: Chrome, page: Path, width: int, scheme: str) -> None:
    fits_and_everyone_can_read_it(browser, page, width, scheme)


def test_the_answer_stands_above_its_front_and_what_to_deploy(browser: Chrome, page: Path) -> None:
    answer_on_top(browser, page)
    for folder in (page.parent / "deployments").iterdir():
        assert folder.name in evaluate(browser, "return document.body.textContent")
