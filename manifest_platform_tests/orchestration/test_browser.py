"""Dagster's pages in a browser: lineage, a blocked feed, a click on Materialize, a backfill, plots.

If MANIFEST_PLATFORM_SCREENSHOTS names a folder, screenshots are stored there: `make screenshots` makes those of the docs.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import Locator, Page, expect, sync_playwright

from manifest_platform_tests.orchestration.conftest import STRICT
from manifest_platform_tests.orchestration.dagster_server import Server
from manifest_platform_tests.orchestration.dagster_shop import resolve
from manifest_platform_tests.pipeline.shop import NAME, Shop, run_name, run_names

pytestmark = pytest.mark.long

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
SHOTS = os.environ.get("MANIFEST_PLATFORM_SCREENSHOTS")
PATIENCE_MS = 60_000
DRAWN_MS = 1_500
"""The longest time for lines and boxes to appear after their texts."""


class Pages:
    """The pages of a server in a browser, and screenshots of them."""

    def __init__(self, page: Page, server: Server) -> None:
        self.page, self._root = page, f"http://127.0.0.1:{server.port}"

    def open(self, path: str) -> Page:
        """Opens a page by its path."""
        self.page.goto(f"{self._root}/{path}")
        return self.page

    def asset(self, name: str, view: str = "overview") -> Page:
        """Opens a tab of an asset's page, by its path below the dataset."""
        return self.open(f"assets/{NAME}/{name}?view={view}")

    def shot(self, name: str) -> None:
        """Takes a screenshot for the docs."""
        if SHOTS:
            self.page.wait_for_timeout(DRAWN_MS)
            self.page.screenshot(path=Path(SHOTS) / f"ui-{name}.png")


@pytest.fixture
def browser() -> str:
    """A browser on this machine."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail(
            "Dagster's pages are looked at in a browser, and there is none: install Chromium (apt-get install chromium)"
        )
    return found


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Three runs have landed and are merged; the second is broken."""
    home = Path(tempfile.mkdtemp(prefix="shop-")) if SHOTS else tmp_path / "shop"  # the screenshots show this name
    shop = Shop(home, shred=STRICT, merge={})
    shop.write(0, 2)
    shop.write(1, corrupt=True)
    yield shop
    if SHOTS:
        shutil.rmtree(home)


@pytest.fixture
def server(shop: Shop, tmp_path: Path) -> Iterator[Server]:
    started = Server(shop.config_file, NAME, tmp_path / "dagster")
    try:
        started.start()
        yield started
    finally:
        started.stop()


@pytest.fixture
def pages(browser: str, server: Server) -> Iterator[Pages]:
    """The server's pages. Requests to other machines get `not found`."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=OPTIONS)
        page = chromium.new_page(viewport={"width": 1280, "height": 720})
        page.set_default_timeout(PATIENCE_MS)
        yield Pages(page, server)
        chromium.close()


@pytest.mark.timeout(600)
def test_the_pages_show_and_do_what_people_need(pages: Pages, server: Server, shop: Shop) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    [failed] = server.until("a run that failed", lambda: [run for run in server.runs() if run["status"] == "FAILURE"])
    server.stop_sensor()
    _lineage_reads_at_first_sight(pages)
    _a_blocked_feed_is_red(pages, failed["runId"])
    _the_overview_says_what_to_do(pages)
    _mend(shop)
    _a_click_materializes(pages, server)
    _a_backfill_loads_what_is_left(pages, server)
    assert shop.seen.runs == run_names(0, 1, 2)
    _there_is_something_to_plot(pages)


def _lineage_reads_at_first_sight(pages: Pages) -> None:
    page = pages.open("asset-groups")
    for group in (NAME, f"{NAME}_merged"):
        expect(page.get_by_text(group, exact=True).first).to_be_visible()
    assert not page.get_by_text("shredded", exact=True).count(), "groups are folded at first"
    page = pages.open(f"locations/manifest_platform/asset-groups/{NAME}/lineage")
    for asset in ("enriched_runs", "shredded", "warehouse", "overview"):
        expect(page.get_by_text(asset, exact=True).first).to_be_visible()
    pages.shot("lineage")


def _a_blocked_feed_is_red(pages: Pages, run_id: str) -> None:
    page = pages.open("runs")
    expect(page.get_by_text("Failure", exact=True).first).to_be_visible()
    page.get_by_role("link", name=run_id[:8]).first.click()
    expect(page.get_by_text(f"Blocked by {run_name(1)}: ").first).to_be_visible()
    pages.shot("blocked")
    page = pages.asset("shredded", "partitions")
    expect(page.get_by_text("Failed (1)")).to_be_visible()
    expect(page.get_by_text("Materialized (2)")).to_be_visible()
    pages.shot("partitions")


def _the_overview_says_what_to_do(pages: Pages) -> None:
    page = pages.asset("overview")
    expect(page.get_by_text(f"manifest-platform resolve {run_name(1)}", exact=True).first).to_be_visible()


def _mend(shop: Shop) -> None:
    """Allows the run's bad rows and resolves it, as an operator would."""
    whole = yaml.safe_load(shop.config_file.read_text())
    whole["datasets"][NAME]["shred"]["bad_rows"] = {"max_count": 1_000, "max_share": 1.0}
    shop.config_file.write_text(yaml.safe_dump(whole))
    resolve(shop, 1)


def _launch(dialog: Locator) -> None:
    dialog.get_by_role("button", name=re.compile("Launch")).click()


def _a_click_materializes(pages: Pages, server: Server) -> None:
    page = pages.asset("shredded", "partitions")
    page.get_by_text(run_name(1), exact=True).filter(visible=True).first.click()
    page.get_by_role("button", name=re.compile("Materialize")).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("1 partition", exact=True)).to_be_visible()
    _launch(dialog)
    server.until("the partition", lambda: server.loaded("shredded") == run_names(0, 1, 2))
    page = pages.asset("shredded", "partitions")
    expect(page.get_by_text("Failed (0)")).to_be_visible()


def _a_backfill_loads_what_is_left(pages: Pages, server: Server) -> None:
    page = pages.asset("warehouse", "partitions")
    page.get_by_role("button", name=re.compile("Materialize")).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Missing", exact=True).click()
    expect(dialog.get_by_text("2 partitions", exact=True).first).to_be_visible()
    _launch(dialog)
    server.until("the backfill", lambda: server.loaded("warehouse") == run_names(0, 1, 2))


def _there_is_something_to_plot(pages: Pages) -> None:
    page = pages.asset("warehouse")
    page.get_by_text("Plots", exact=True).first.click()
    for plot in ("lag_seconds", "seconds", "requests"):
        expect(page.get_by_text(plot, exact=True).first).to_be_visible()
    assert page.locator("canvas").count() >= 3
