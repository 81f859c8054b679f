"""The page in a real browser: headless Chromium, driven by Selenium. Skipped, with the reason, where there is none."""

import base64
import csv
import io
import json
import re
import shutil
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.bench_results import bench_run
from tests.report.page.conftest import EVIL, STEP, detector, emit, trained  # noqa: F401
from tests.report.run_dirs import step_times, write_run
from vernier.measure.study.csv_tables import csv_text
from vernier.report.page.build import build
from vernier.report.page.collect import collect
from vernier.report.page.serve import Live, Server
from vernier.store import RunDir

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


class Browser:
    """A headless Chromium for these tests."""

    def __init__(self, driver: Any, downloads: Path) -> None:
        self.driver, self.downloads = driver, downloads

    def open(self, path: Path | str, width: int = 1280, dark: bool = False) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
        self.driver.get(path if isinstance(path, str) else path.as_uri())
        self.until("return document.documentElement.dataset.ready === 'yes'")

    def js(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def until(self, text: str) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 20, 0.05).until(lambda d: d.execute_script(text))

    def find(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def click(self, selector: str) -> None:
        self.js("arguments[0].scrollIntoView({block: 'center'})", self.find(selector))
        self.find(selector).click()

    def console_messages(self) -> list[str]:
        return [f"{e['level']} {e['message']}" for e in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """All addresses that were requested, without data within the page."""
        messages = [json.loads(e["message"])["message"] for e in self.driver.get_log("performance")]
        urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [u for u in urls if not u.startswith(("data:", "blob:"))]

    def downloaded(self, name: str) -> str:
        file = self.downloads / name
        for _ in range(200):
            if file.is_file() and not list(self.downloads.glob("*.crdownload")):
                break
            threading.Event().wait(0.05)
        text = file.read_text()
        file.unlink()
        return text


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.skip("no chromium and chromedriver here (Debian: apt install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromedriver))
    downloads = tmp_path_factory.mktemp("downloads")
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    try:
        yield Browser(driver, downloads)
    finally:
        driver.quit()


def devices_csv(path: Path, devices: int = 64, repeats: int = 8) -> Path:
    """A study of many devices, one of them slow, in the SC22 study's columns."""
    dice = np.random.default_rng(3)
    rows = [
        {
            "exp": "resnet",
            "uuid": f"GPU-{d:02d}",
            "cabinet": f"c{d // 16:03d}",
            "node": d // 4,
            "perf_ms": 120 * (1.2 if d == 7 else 1) * (1 + 0.01 * dice.standard_normal()),
            "freq": 1500 - d,
            "pwr": 250 + float(dice.standard_normal()),
            "temp": 50 + d / 8,
        }
        for d in range(devices)
        for _ in range(repeats)
    ]
    path.write_text(csv_text(list(rows[0]), rows))
    return path


@pytest.fixture(scope="module")
def everything(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """A page with every section except the profile: a real training and written runs, with hostile names."""
    out = tmp_path_factory.mktemp("everything")
    table = devices_csv(out / "fleet.csv")
    paths = [trained, detector(out / "d", evil=EVIL), bench_run(out / "b"), table]
    (out / "page.html").write_text(build(collect(paths)).html())
    return out / "page.html"


def test_it_opens_without_messages_or_requests_and_draws_every_chart(browser: Browser, everything: Path) -> None:
    browser.console_messages(), browser.requests()
    for width, dark in ((1280, False), (390, True)):
        browser.open(everything, width, dark)
        assert browser.console_messages() == []
        assert browser.requests() == [everything.as_uri()]
        empty = browser.js(
            "return [...document.querySelectorAll('.plot')]"
            ".filter(p => !p.querySelector('svg.drawn :is(path, rect, circle)')).map(p => p.dataset.figure)"
        )
        assert empty == []
        assert browser.js("return document.querySelectorAll('.plot').length") > 15
        assert browser.js("return document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out sideways"
    assert browser.js("return window.evil === undefined")


def test_dark_and_light_follow_the_system_and_the_button(browser: Browser, everything: Path) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor"
    browser.open(everything, dark=False)
    light = browser.js(ground)
    browser.open(everything, dark=True)
    dark = browser.js(ground)
    assert light != dark
    assert browser.find("#theme").text == "◐ auto"
    browser.click("#theme")
    assert browser.js(ground) == light
    browser.click("#theme")
    assert browser.js(ground) == dark
    browser.click("#theme")


def test_on_paper_every_chart_stays_and_the_controls_go(browser: Browser, everything: Path) -> None:
    browser.open(everything, width=794)  # A4 at 96 dots per inch
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        hidden = (
            "return [...document.querySelectorAll('figure rect, figure path, figure circle, figure text')]"
            ".filter(e => getComputedStyle(e).display === 'none').length"
        )
        assert browser.js(hidden) == 0
        assert browser.js("return document.querySelectorAll('rect.bar').length") > 0
        assert browser.js("return getComputedStyle(document.querySelector('.topbar')).display") == "none"
        wide = (
            "return [...document.querySelectorAll('table')]"
            ".filter(t => t.getBoundingClientRect().right > innerWidth).map(t => t.innerText.slice(0, 300))"
        )
        assert browser.js(wide) == []
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_the_page_becomes_a_pdf_with_every_chart(browser: Browser, everything: Path) -> None:
    """Charts are lines in the PDF, not pictures of lines."""
    browser.open(everything)
    pdf = base64.b64decode(browser.driver.print_page())
    assert pdf.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) > 3
    streams = [zlib.decompress(s) for s in re.findall(rb"/FlateDecode[^>]*>> stream\n(.*?)\nendstream", pdf, re.DOTALL)]
    drawn = sum(len(re.findall(rb"(?m)\b(?:S|f|re)$", stream)) for stream in streams)
    assert drawn > browser.js("return document.querySelectorAll('figure path, figure rect, figure line').length") / 2


def test_the_cursor_tells_values_by_mouse_and_by_keys(browser: Browser, everything: Path) -> None:
    from selenium.webdriver import ActionChains, Keys

    browser.open(everything)
    rows = browser.js("return figures['lr'].rows")
    browser.js("document.querySelector('[data-figure=\"lr\"]').scrollIntoView({block: 'center'})")
    chart = browser.find('[data-figure="lr"] svg.drawn')
    ActionChains(browser.driver).move_to_element(chart).perform()
    text = browser.until("const t = document.querySelector('.tip:not([hidden])'); return t && t.textContent")
    assert "epoch" in text
    browser.js("tip.hide()")
    area = browser.find('[data-figure="lr"] .area')
    browser.js("arguments[0].focus()", area)
    browser.js("remembered('lr').at = null")
    ActionChains(browser.driver).send_keys(Keys.ARROW_RIGHT).perform()
    first = browser.until("const t = document.querySelector('.tip:not([hidden])'); return t && t.textContent")
    assert f"epoch {rows[0][1]:g}" in first
    ActionChains(browser.driver).send_keys(Keys.ESCAPE).perform()
    assert browser.js("return document.querySelector('.tip').hidden")


def test_dragging_zooms_and_names_hide_their_line(browser: Browser, everything: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.open(everything)
    browser.js("document.querySelector('[data-figure=\"throughput\"]').scrollIntoView({block: 'center'})")
    chart = browser.find('[data-figure="throughput"] svg.drawn')
    ActionChains(browser.driver).move_to_element_with_offset(chart, -80, 0).click_and_hold().move_by_offset(
        120, 0
    ).release().perform()
    low, high = browser.js("return memory.get('throughput').zoom")
    assert 0 < low < high < 2.1
    browser.click('[data-figure="throughput"] .unzoom')
    assert browser.js("return memory.get('throughput').zoom") is None
    lines = "return document.querySelectorAll('[data-figure=\"lr\"] path.line').length"
    before = browser.js(lines)
    browser.click('[data-figure="lr"] .legend button')
    assert browser.js(lines) == before - 1


def test_smoothing_adds_a_line_and_keeps_the_raw_one_faint(browser: Browser, everything: Path) -> None:
    browser.open(everything)
    assert browser.js("return document.querySelectorAll('.line.faint').length") == 0
    browser.js(
        "const s = document.getElementById('smooth'); s.value = 0.8;"
        "s.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert browser.js("return document.querySelectorAll('[data-figure=\"loss\"] .line.faint').length") > 0
    assert browser.find("#smooth-value").text == "0.8"


def test_tables_sort_and_come_as_csv(browser: Browser, everything: Path) -> None:
    browser.open(everything)
    column = "return [...document.querySelectorAll('#study-0 tbody tr')].map(r => Number(r.cells[6].dataset.v))"
    unsorted = browser.js(column)
    browser.click("#study-0 thead th:nth-child(7) button")
    assert browser.js(column) == sorted(unsorted)
    browser.click("#study-0 thead th:nth-child(7) button")
    assert browser.js(column) == sorted(unsorted, reverse=True)
    assert browser.find("#study-0 thead th:nth-child(7)").get_attribute("aria-sort") == "descending"
    browser.click('button[data-table="study-0"]')
    rows = list(csv.DictReader(io.StringIO(browser.downloaded("study-0.csv"))))
    assert len(rows) == 64
    assert rows[0]["device"] == "GPU-07"
    assert float(rows[0]["relative step time"]) > 1.1


def test_a_figures_data_opens_as_a_table_and_comes_as_csv(browser: Browser, everything: Path) -> None:
    browser.open(everything)
    browser.click('details[data-figure="class-ap"] summary')
    cells = browser.until(
        "const t = document.querySelector('details[data-figure=\"class-ap\"] tbody');"
        "return t && [...t.rows].map(r => r.cells[0].textContent)"
    )
    assert cells == ["disc", f"star{EVIL}"]
    browser.click('button[data-do="csv"][data-figure="class-ap"]')
    rows = list(csv.reader(io.StringIO(browser.downloaded("class-ap.csv"))))
    assert rows[0] == ["class", "run", "AP", "AP50"]
    assert rows[2][0] == f"star{EVIL}"
    browser.click('button[data-do="svg"][data-figure="class-ap"]')
    assert browser.downloaded("class-ap.svg").startswith("<svg")


def test_a_table_says_where_it_is_cut_and_shows_the_rate_on_a_phone(browser: Browser, everything: Path) -> None:
    browser.open(everything, width=390)
    hint = "return document.querySelector('.card:has(#bench-0) .more').textContent"
    assert browser.js(hint) == "scroll sideways for more columns →"
    rate = browser.js(
        "const box = document.querySelector('#bench-0').closest('.scroll').getBoundingClientRect();"
        "const cell = document.querySelector('#bench-0 tbody tr').cells[1];"
        "return [cell.textContent, cell.getBoundingClientRect().right <= box.right + 1]"
    )
    assert rate == ["80 (72 to 88)", True]
    browser.open(everything, width=1280)
    assert browser.js("return document.querySelector('#what-ran').closest('.scroll').classList.contains('tall')")


def test_disturbed_runs_can_be_hidden(browser: Browser, tmp_path: Path) -> None:
    path = devices_csv(tmp_path / "fleet.csv")
    lines = path.read_text().splitlines()
    column = lines[0].split(",").index("perf_ms")
    cells = lines[5].split(",")
    lines[5] = ",".join([*cells[:column], "400", *cells[column + 1 :]])
    path.write_text("\n".join(lines) + "\n")
    (tmp_path / "page.html").write_text(build(collect([path])).html())
    browser.open(tmp_path / "page.html")
    dots = "return document.querySelectorAll('[data-figure=\"against-power-0\"] circle').length"
    before = browser.js(dots)
    browser.click('button[data-do="disturbed"][data-figure="against-power-0"]')
    assert browser.js(dots) == before - 1


def test_charts_of_one_of_several_runs_name_it_and_share_their_axis(browser: Browser, everything: Path) -> None:
    browser.open(everything)
    keys = "return [...document.querySelectorAll('[data-figure=\"accuracy\"] .key')].map(k => k.textContent)"
    assert len(browser.js(keys)) == 2  # one run has an accuracy, and the page has several
    assert all("shapes-quick" in key for key in browser.js(keys))
    ranges = browser.js("return ['loss', 'accuracy', 'lr', 'throughput'].map(n => figures[n].chart.x_range.join())")
    assert len(set(ranges)) == 1


def test_boxes_below_the_least_score_are_hidden(browser: Browser, everything: Path) -> None:
    browser.open(everything)
    shown = "return [...document.querySelectorAll('.example .tag')].filter(t => !t.hidden).length"
    assert browser.js(shown) == 1
    browser.js(
        "const s = document.getElementById('least-score'); s.value = 0;"
        "s.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert browser.js(shown) == 2


def test_the_live_page_updates_without_losing_the_scroll_position(browser: Browser, tmp_path: Path) -> None:
    run = RunDir(write_run(tmp_path, "going", step_times(1, n=100), status="running"))
    with run.locked(), Server(Live([run.path])) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        browser.open(server.url)
        browser.until("return document.getElementById('live').textContent.startsWith('live ·')")
        browser.click('details[data-figure="loss"] summary')
        rows = browser.js("return figures.loss.rows.length")
        emit(run, STEP)
        browser.until(f"return figures.loss.rows.length === {rows + 1}")
        assert browser.js("return document.querySelector('details[data-figure=\"loss\"]').open")
        assert (
            browser.js("return document.querySelectorAll('details[data-figure=\"loss\"] tbody tr').length") == rows + 1
        )
        assert browser.js("return document.querySelectorAll('main > section').length") == 3
        server.shutdown()
    browser.until("return document.getElementById('live').classList.contains('lost')")
    browser.driver.get("about:blank")


@pytest.mark.parametrize("what", ["1,000 epochs", "64 devices"])
def test_large_pages_open(
    browser: Browser, what: str, tmp_path: Path, record_property: Callable[[str, Any], None]
) -> None:
    """How long they take is recorded, not asserted: machines differ."""
    if what == "64 devices":
        path = devices_csv(tmp_path / "fleet.csv", repeats=20)
    else:
        path = write_run(tmp_path, "long", step_times(1, n=20_000), steps_per_epoch=20, window=5)
    page = tmp_path / "page.html"
    page.write_text(build(collect([path])).html())
    assert page.stat().st_size < 6_000_000
    browser.open(page)
    took_ms = browser.js("const n = performance.getEntriesByType('navigation')[0]; return n.loadEventEnd - n.startTime")
    record_property("opened_ms", took_ms)
    assert browser.js("return document.querySelectorAll('svg.drawn').length") >= 5
