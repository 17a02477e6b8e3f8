"""The page in a real browser: what it says is in the tables, by keyboard too, with many cells and partitions.

It needs the extra ``page-test`` and a Chromium (Debian's package). `PAGE_PICTURES=FOLDER` keeps pictures of it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamjoin_ds.watch.watched_join import WatchedJoin
from streamjoin_ds.watch.watcher import Watcher, WatchOrder
from tests.watch.conftest import CELLS, PARTITIONS, SCHEMA, Crowded, Joined

pytest.importorskip("uvicorn")
playwright = pytest.importorskip("playwright.sync_api", reason="the extra page-test is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")]
TIMEOUT_MS = 120_000
FOLLOWS_S = 10.0  # two on a machine that has nothing else to do


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any) -> Iterator[Opened]:
    """Opens pages, and in the end tells what went wrong in them."""
    contexts, errors = [], []

    def open_page(url: str, scheme: str = "light") -> Any:
        context = browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 1000})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url, timeout=TIMEOUT_MS)
        page.wait_for_selector("#tiles .tile", timeout=TIMEOUT_MS)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def pictured(page: Any, name: str) -> None:
    if folder := os.environ.get("PAGE_PICTURES"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def tile(page: Any, label: str) -> str:
    return str(page.locator(".tile", has=page.get_by_text(label, exact=True)).inner_text())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_says_what_the_tables_say(joined: Joined, opened: Opened, scheme: str) -> None:
    seconds = iter(range(0, 1_000_000, 10))
    join = WatchedJoin(joined.checkpoint, lambda: next(seconds))
    join.poll()
    facts = join.facts()
    with Watcher(WatchOrder(joined.checkpoint, page="0")) as watcher:
        page = opened(watcher.url, scheme)
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert f"{facts['totals']['matches']:,} in {facts['totals']['batches']} batches" in tile(page, "matches")
        late = sum(stream["late"] for stream in facts["streams"].values())
        assert f"{late} rows" in tile(page, "late")
        assert page.locator("#matches-table tbody tr").count() == len(facts["matches"]["rows"])
        assert "on a map: a, b" in page.locator("#picture-told").inner_text()
        assert page.locator("#rejects-body tbody tr").count() == len(facts["rejects"]["reasons"])
        assert "A delay of" in page.locator("#late-body").inner_text()
        pictured(page, f"small-{scheme}")


def test_many_cells_and_partitions_are_read_by_keyboard(tmp_path: Path, opened: Opened) -> None:
    run = Crowded(tmp_path)
    run.commit()
    with Watcher(WatchOrder(run.checkpoint, page="0")) as watcher:
        check_by_keyboard(opened(watcher.url, "dark"), run)


def check_by_keyboard(page: Any, run: Crowded) -> None:
    assert page.locator("#cells-grid button").count() == CELLS
    assert page.locator("#waiting .strip i").count() == PARTITIONS
    assert "held by a/sensor-0007, 24.0 h behind" in tile(page, "watermark")
    page.keyboard.press("4")
    assert page.evaluate("document.activeElement.id") == "cells"
    page.locator("#cells-grid button").first.focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    assert page.locator("#cells-told").inner_text().startswith("cell 21: ")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.keyboard.press("p")
    assert page.locator("#state").inner_text() == "paused"
    page.keyboard.press("p")
    page.keyboard.press("?")
    assert page.locator("#keys").evaluate("dialog => dialog.open")
    page.keyboard.press("Escape")
    pictured(page, "many")
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, "nothing sticks out"
    square = page.locator("#waiting .strip i").nth(8)
    before = square.get_attribute("title")
    run.commit()
    until_s = time.monotonic() + FOLLOWS_S
    while square.get_attribute("title") == before:
        assert time.monotonic() < until_s, "the page does not follow"
        page.wait_for_timeout(50)
    assert page.locator("#waiting .strip i").count() == PARTITIONS
    assert f"number {run.batch}," in tile(page, "last batch")


def test_a_page_that_is_open_goes_on_with_the_query_that_is_started_again(tmp_path: Path, opened: Opened) -> None:
    run = Joined(tmp_path)
    with Watcher(WatchOrder(run.checkpoint, page="0")) as first:
        assert first.url is not None
        address = first.url.split("/")[2]
        run.run()
        page = opened(first.url)
        before = tile(page, "matches")
    page.locator("#state", has_text="the query has ended").wait_for(timeout=TIMEOUT_MS)
    for name in ("a", "b"):
        with (tmp_path / f"{name}.csv").open("a") as file:
            file.writelines(f"{1_700_000_100_000_000 + k},50,8\n" for k in range(20))
    run.run(page=address)
    with Watcher(WatchOrder(run.checkpoint, page=address)):
        until_s = time.monotonic() + TIMEOUT_MS / 1000
        while tile(page, "matches") == before:
            assert time.monotonic() < until_s, "the page does not follow"
            page.wait_for_timeout(100)
    assert set(SCHEMA) <= {name.removeprefix("a_") for name in page.locator("#matches-table th").all_inner_texts()}
