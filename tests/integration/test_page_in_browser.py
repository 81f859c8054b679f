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
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vernier as v
from tests.report.bench_results import bench_run
from tests.report.page.conftest import EVIL, STEP, detector, emit, trained  # noqa: F401
from tests.report.run_dirs import step_times, write_run
from vernier.lab.reading.csv_tables import csv_text
from vernier.measure.estimates import in_known_digits
from vernier.report.page.build import build
from vernier.report.page.collect import collect
from vernier.report.page.numbers import _with_digits, decimals, number

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

        return WebDriverWait(self.driver, 120, 0.05).until(lambda d: d.execute_script(text))

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
        return self.downloaded_bytes(name).decode()

    def downloaded_bytes(self, name: str) -> bytes:
        file = self.downloads / name
        for _ in range(200):
            if file.is_file() and not list(self.downloads.glob("*.crdownload")):
                break
            threading.Event().wait(0.05)
        content = file.read_bytes()
        file.unlink()
        return content


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
            "return [...document.querySelectorAll('.plot:not([data-figure=runs])')]"
            ".filter(p => !p.querySelector('svg.drawn :is(path, rect, circle)')).map(p => p.dataset.figure)"
        )
        assert empty == []
        assert browser.js("return document.querySelectorAll('.plot').length") > 15
        assert browser.js("return document.querySelectorAll('#runs-grid tbody tr').length") == 3
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


def _printed(driver: Any) -> str:
    """The page as a PDF. ChromeDriver waits 10 seconds for it, whatever else the machine does."""
    from selenium.common.exceptions import TimeoutException

    for _ in range(12):
        with suppress(TimeoutException):
            return str(driver.print_page())
    pytest.fail("the page cannot be printed")


def test_the_page_becomes_a_pdf_with_every_chart(browser: Browser, everything: Path) -> None:
    """Charts are lines in the PDF, not pictures of lines."""
    browser.open(everything)
    pdf = base64.b64decode(_printed(browser.driver))
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
    lines = "return document.querySelectorAll('[data-figure=\"loss\"] path.line').length"
    before = browser.js(lines)
    browser.click('[data-figure="loss"] .legend button')
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
    column = "return [...document.querySelectorAll('#study-0 tbody tr')].map(r => Number(r.cells[1].dataset.v))"
    unsorted = browser.js(column)
    browser.click("#study-0 thead th:nth-child(2) button")
    assert browser.js(column) == sorted(unsorted)
    browser.click("#study-0 thead th:nth-child(2) button")
    assert browser.js(column) == sorted(unsorted, reverse=True)
    assert browser.find("#study-0 thead th:nth-child(2)").get_attribute("aria-sort") == "descending"
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
    keys = "return [...document.querySelectorAll('#training .runs-legend .key')].map(k => k.textContent)"
    names = browser.js(keys)
    assert [name.split("-")[0] for name in names] == ["shapes", "detector"]
    plots = (
        "return ['loss', 'loss-detect', 'accuracy']"
        ".map(n => Boolean(document.querySelector(`[data-figure='${n}'] svg.drawn path.line`)))"
    )
    assert browser.js(plots) == [True, True, True]
    browser.click(f'#training .runs-legend .key[data-run="{names[0]}"]')
    assert browser.js(plots) == [False, True, False]
    browser.click(f'#training .runs-legend .key[data-run="{names[0]}"]')
    ranges = browser.js("return ['loss', 'accuracy', 'lr'].map(n => JSON.stringify(figures[n].chart.x_ranges))")
    assert len(set(ranges)) == 1


def test_the_x_axis_is_by_epoch_step_or_time_and_the_address_keeps_it(browser: Browser, everything: Path) -> None:
    title = "return [...document.querySelectorAll('[data-figure=\"lr\"] .axis-title')].at(-1).textContent"
    browser.open(everything)
    assert browser.js(title) == "epoch"
    browser.click('[data-do="axis"][data-axis="step"]')
    assert browser.js(title) == "step"
    assert browser.js("return location.hash") == "#x=step"
    browser.click('nav a[href="#training"]')
    browser.until("return location.hash === '#training&x=step'")
    browser.driver.get("about:blank")
    browser.open(f"{everything.as_uri()}#training&x=time%20s")
    assert browser.js(title) == "time, s"
    assert browser.js("return document.querySelector('[data-axis=\"time s\"]').ariaPressed") == "true"
    assert browser.js("return scrollY") > 100
    rings = "return document.querySelectorAll('[data-figure=\"accuracy\"] .ring').length"
    assert browser.until(rings) == 1


def test_a_figure_is_saved_as_a_png_with_title_and_what_ran(browser: Browser, everything: Path) -> None:
    browser.open(everything)
    browser.console_messages()
    browser.click('button[data-do="png"][data-figure="loss"]')
    picture = Image.open(io.BytesIO(browser.downloaded_bytes("loss.png")))
    assert picture.width == 1920
    assert picture.height > 600
    colours = picture.convert("RGB").getcolors(1 << 24)
    assert colours is not None
    assert len(colours) > 50
    text = browser.js("return pictureOf(figures['loss']).text")
    for words in ("Loss of classifiers", "shapes-quick", "training", "torch 2", "Vernier"):
        assert words in text
    assert browser.console_messages() == []


def test_numbers_are_the_same_in_charts_and_tables(browser: Browser, everything: Path) -> None:
    values = [0, 7, -3, 12345, 0.5, 123.456, 1234.56, 1234.04, 98765.4, 0.000123456, 1.5e-7, 1e-4, None, "x", True]
    browser.open(everything)
    single = browser.js("return arguments[0].map(shown)", [float(v) if type(v) is int else v for v in values])
    assert single == [number(v) for v in values]
    columns = [[3600.54, 0.7241], [0.5, 0.1], [99.9, 0.0004], [12.0], [0.0]]
    together = browser.js("return arguments[0].map(c => c.map(v => withDigits(v, decimals(c))))", columns)
    assert together == [[_with_digits(v, decimals(c)) for v in c] for c in columns]
    pairs = [(4.424, 0.88), (87.04, 2.0), (175.0, 75.0), (1234.6, 3.0), (0.5163, 0.0001), (9787.4, 40.0)]
    known = browser.js("return arguments[0].map(([v, half]) => withDigits(v, knownDecimals(v, half)))", pairs)
    assert known == [in_known_digits(v, half) for v, half in pairs]
    settings = [0.05, 0.0005, 1e-5, 5e-05, 2.5e-7, 0.1, 32.0]
    assert browser.js("return arguments[0].map(typed)", settings) == [f"{v:g}" for v in settings]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 20 runs of one recipe with four learning rates."""
    out = tmp_path_factory.mktemp("sweep")
    for i in range(20):
        write_run(out, "sweep", [0.1 + i / 100] * 100, recipe__optim__lr=0.1 * (1 + i % 4), recipe__seed=i)
    (out / "page.html").write_text(build(collect([out])).html())
    return out / "page.html"


def test_runs_are_searched_sorted_grouped_and_picked(browser: Browser, sweep: Path) -> None:
    rows = "return [...document.querySelectorAll('#runs-grid tbody tr')].map(r => r.cells[0].textContent.trim())"
    search = (
        "const s = document.getElementById('runs-search'); s.value = arguments[0];"
        "s.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    browser.open(sweep)
    assert len(browser.js(rows)) == 20
    browser.js(search, "lr=0.2 finished")
    assert len(browser.js(rows)) == 5
    browser.js(search, "lr>=0.3 nothing-like-this")
    assert browser.js(rows) == []
    browser.js(search, "")
    browser.click('#runs-grid th[data-v="img/s"] button')
    rates = "return [...document.querySelectorAll('#runs-grid tbody tr')].map(r => Number(r.cells[2].textContent))"
    fastest_first = browser.js(rates)
    assert fastest_first == sorted(fastest_first, reverse=True)
    browser.js(
        "const g = document.getElementById('runs-group'); g.value = 'lr';"
        "g.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    assert [text.lstrip("▸ ") for text in browser.js(rows)] == [f"lr {lr} (5)" for lr in (0.1, 0.2, 0.3, 0.4)]
    browser.click("#runs-grid tr.group button")
    assert len(browser.js(rows)) == 4 + 5
    assert browser.js("return location.hash") == "#sort=-img%2Fs&group=lr"
    browser.click("#runs-grid tr.inside input")
    assert browser.find(".command code").text.startswith(f"vernier report {sweep.parent}/20")
    browser.click('button[data-do="runsCsv"]')
    table = list(csv.DictReader(io.StringIO(browser.downloaded("runs.csv"))))
    assert len(table) == 20
    assert {"run", "top-1 %", "img/s", "lr", "seed", "path"} <= set(table[0])


def test_boxes_below_the_least_score_are_hidden(browser: Browser, everything: Path) -> None:
    browser.open(everything)
    shown = "return [...document.querySelectorAll('.example .tag')].filter(t => !t.hidden).length"
    assert browser.js(shown) == 1
    browser.js(
        "const s = document.getElementById('least-score'); s.value = 0;"
        "s.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert browser.js(shown) == 2
    assert browser.js("return document.querySelector('.example rect[data-score] title').textContent").startswith("star")
    visible = "return getComputedStyle(document.querySelector('.example .tag:not([hidden])')).display !== 'none'"
    assert browser.js(visible)
    browser.js(
        "const tag = document.querySelector('.example .tag');"
        "for (let i = 0; i < 8; i++) tag.after(tag.cloneNode(true)); showExamples(0)"
    )
    assert not browser.js(visible), "many labels would hide the image and each other"


def test_figures_are_drawn_in_the_output_of_a_notebook(
    browser: Browser,
    trained: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    """In a frame that can reach nothing else; its buttons work there too."""
    objects = (
        v.open_run(trained),
        v.Benchmark(bench_run(tmp_path)),
        v.study_analyze(devices_csv(tmp_path / "fleet.csv")),
    )
    html = "".join(thing._repr_html_() for thing in objects)
    (tmp_path / "cell.html").write_text(f"<!doctype html><html data-ready=yes><meta charset=utf-8>{html}")
    browser.console_messages()
    browser.open(tmp_path / "cell.html", 900)
    for frame in browser.driver.find_elements("css selector", "iframe"):
        browser.driver.switch_to.frame(frame)
        browser.until("return document.documentElement.dataset.ready === 'yes'")
        drawn = browser.js(
            "return [document.querySelectorAll('.plot').length, document.querySelectorAll('svg.drawn').length]"
        )
        assert drawn[0] == drawn[1] > 0
        browser.click("#theme")
        browser.click("button[data-do=csv]")
        browser.driver.switch_to.default_content()
    assert browser.console_messages() == []
    assert browser.js("return window.figures === undefined")


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
