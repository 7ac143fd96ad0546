"""The page of a made-up sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prebleexp.report import page
from prebleexp.report.figures import figure
from prebleexp.report.summary import Row
from tests.support.pages.sweep_rows import SWEEP

FIGURE = "latency_against_rate"


def html(found: list[Row], failures: list[Row] | None = None, **about: Any) -> str:
    return page.render(report(found, failures, **about))


def report(found: list[Row], failures: list[Row] | None = None, **about: Any) -> page.Report:
    sweep = replace(SWEEP, **about)
    return page.Report(sweep, found, [figure(FIGURE, found, sweep.axes)], failures=failures or [])
