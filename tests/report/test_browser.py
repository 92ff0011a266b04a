"""Reports in a real browser: headless Chromium, spoken to through chromedriver's own HTTP interface."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedgwc.cli.report import report_command
from tests.report.conftest import Finished

pytestmark = pytest.mark.slow

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
]
EMPTY = """return [...document.querySelectorAll("figure svg, figure image")].filter((e) => {
  const box = e.getBoundingClientRect();
  return box.width < 40 && e.tagName === "svg" || box.width * box.height === 0;
}).map((e) => e.closest("figure").id);"""
BLANK = """return [...document.querySelectorAll("figure svg")]
  .filter((e) => e.querySelectorAll("path, image, use").length < 3).map((e) => e.closest("figure").id);"""
FIRST_COLUMN = (
    """return [...document.querySelector("table.sortable").tBodies[0].rows].map((r) => r.cells[arguments[0]].textContent);"""
)


class Browser:
    """The few commands of the WebDriver protocol that are needed here."""

    def __init__(self, port: int, profile: Path) -> None:
        self.base = f"http://127.0.0.1:{port}"
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        answer = self.call("/session", {"capabilities": {"alwaysMatch": wanted}})
        self.base += f"/session/{answer['sessionId']}"

    def call(self, path: str, data: dict[str, Any] | None = None, method: str | None = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.base + path, body, {"Content-Type": "application/json"}, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
            return json.load(reply)["value"]

    def open(self, path: Path) -> None:
        self.call("/url", {"url": path.as_uri()})

    def run(self, script: str, *args: Any) -> Any:
        return self.call("/execute/sync", {"script": script, "args": list(args)})

    def click(self, selector: str) -> None:
        found = self.call("/element", {"using": "css selector", "value": selector})
        self.call(f"/element/{next(iter(found.values()))}/click", {})

    def devtools(self, command: str, **params: Any) -> None:
        self.call("/goog/cdp/execute", {"cmd": command, "params": params})

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.call("/se/log", {"type": "browser"})]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    driver = shutil.which("chromedriver")
    if driver is None or not (shutil.which("chromium") or shutil.which("google-chrome")):
        pytest.skip("no headless browser here; `make browser` installs one")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(port)
        browser = Browser(port, tmp_path_factory.mktemp("profile"))
        yield browser
        browser.call("", method="DELETE")
    finally:
        process.terminate()
        process.wait(20)


def _wait(port: int) -> None:
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError("chromedriver did not answer within 10 seconds")


@pytest.fixture(scope="module")
def pages(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    runs = [finished("auto"), finished("auto", seed=1), finished("fedavg"), finished("ifca")]
    report_command(runs[:1], folder / "one.html", None)
    report_command(runs, folder / "several.html", None)
    return {"one": folder / "one.html", "several": folder / "several.html"}


@pytest.mark.parametrize("name", ["one", "several"])
@pytest.mark.parametrize("width", [1200, 390])
def test_every_figure_is_there_and_nothing_complains(name: str, width: int, browser: Browser, pages: dict[str, Path]) -> None:
    browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
    browser.open(pages[name])
    assert browser.complaints() == []
    assert browser.run("return document.querySelectorAll('figure').length;") >= 4
    assert browser.run(EMPTY) == []
    assert browser.run(BLANK) == []
    assert browser.run("return document.documentElement.scrollWidth <= window.innerWidth;"), "the page is wider than the screen"


def test_tables_sort_by_a_click(browser: Browser, pages: dict[str, Path]) -> None:
    browser.devtools("Emulation.clearDeviceMetricsOverride")
    browser.open(pages["several"])
    heads = browser.run(
        "return [...document.querySelectorAll('table.sortable')[0].tHead.rows[0].cells].map((c) => c.textContent);"
    )
    column = heads.index("accuracy %")
    button = f"table.sortable thead th:nth-child({column + 1}) button"

    def values() -> list[float]:
        return [float(text.split()[0]) for text in browser.run(FIRST_COLUMN, column)]

    before = browser.run(FIRST_COLUMN, 0)
    browser.click(button)
    assert values() == sorted(values(), reverse=True)
    browser.click(button)
    assert values() == sorted(values())
    assert browser.run("return document.querySelectorAll('[aria-sort=ascending]').length;") == 1
    browser.click("table.sortable thead th:nth-child(1) button")
    after = browser.run(FIRST_COLUMN, 0)
    assert after == sorted(before)
    assert after != before
    assert browser.complaints() == []


def test_dark_mode_turns_the_page_and_its_figures(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["one"])
    text = "getComputedStyle(document.querySelector('figure svg text')).fill"
    colours = f"return [getComputedStyle(document.body).backgroundColor, {text}];"
    seen = {}
    for scheme in ("light", "dark"):
        browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        seen[scheme] = [sum(map(int, c.strip("rgb()").split(","))) for c in browser.run(colours)]
    assert seen["light"][0] > 600 > 150 > seen["dark"][0]  # paper
    assert seen["dark"][1] > seen["light"][1]  # ink
