"""A real browser, for tests of pages that are opened from disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome

from tests.support import patience

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
MISSING = "the report is tested in Chromium: install chromium and chromedriver (Debian: chromium-driver)"


def show(browser: Chrome, report: Path, width: int, scheme: str) -> None:
    for log in ("browser", "performance"):
        browser.get_log(log)  # type: ignore[no-untyped-call]
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    dark = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    browser.get(report.as_uri())


def requested(browser: Chrome) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]  # type: ignore[no-untyped-call]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def complaints(browser: Chrome) -> list[Any]:
    """What the page wrote to the console."""
    return browser.get_log("browser")  # type: ignore[no-untyped-call,no-any-return]


def evaluate(browser: Chrome, script: str, *arguments: Any) -> Any:
    return browser.execute_script(script, *arguments)  # type: ignore[no-untyped-call]


def until(browser: Chrome, condition: str, *arguments: Any) -> Any:
    """Wait for a script's answer to be true."""
    return patience.until(
        lambda: evaluate(browser, f"return {condition}", *arguments),
        lambda: f"{condition}; the console says {complaints(browser)}",
    )
