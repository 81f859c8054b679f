import re
from collections.abc import Callable
from pathlib import Path

from tests.report.run_dirs import step_times, write_run
from vernier.report.page.build import Page
from vernier.report.page.sections.environment import _flatten

PageOf = Callable[..., Page]


def test_rows_that_differ_are_marked_unless_they_always_do(tmp_path: Path, page_of: PageOf) -> None:
    a = write_run(tmp_path, "slow", step_times(1, n=200), recipe__optim__lr=0.1)
    b = write_run(tmp_path, "fast", step_times(2, n=100), recipe__optim__lr=0.2)
    html = str(page_of(a, b).sections[-1].html)
    assert html.startswith('<section class="different-only" id="environment"')
    marked = re.findall(r'<tr class="differs"><td class="mono" data-v="([^"]+)"', html)
    assert {"recipe.optim.lr", "recipe.name"} <= set(marked)
    assert not {"recipe.optim.momentum", "cpu.load_average"} & set(marked)
    assert "2 differ" in html


def test_settings_that_differ_in_their_sixth_digit_are_different(tmp_path: Path, page_of: PageOf) -> None:
    rates = (0.123456, 0.123457)
    runs = [write_run(tmp_path, f"run{i}", [0.1] * 20, recipe__optim__lr=lr) for i, lr in enumerate(rates)]
    html = str(page_of(*runs).sections[-1].html)
    assert all(str(lr) in html for lr in rates)
    assert "recipe.optim.lr" in re.findall(r'<tr class="differs"><td class="mono" data-v="([^"]+)"', html)


def test_one_run_has_nothing_to_compare(tmp_path: Path, page_of: PageOf) -> None:
    html = str(page_of(write_run(tmp_path, "only", step_times(1, n=50))).sections[-1].html)
    assert "different-only" not in html
    assert 'class="differs"' not in html


def test_trees_become_dotted_names() -> None:
    assert _flatten({"a": {"b": 1, "c": {}}, "d": ["x"]}) == {"a.b": "1", "a.c": "none", "d": "x"}


def test_bytes_missing_values_and_numbers_are_for_people() -> None:
    tree = {"memory_bytes": 25274793984, "seed": None, "load": [3.3095703125, 2.0], "decay": 0.00005, "flag": True}
    assert _flatten(tree) == {
        "memory": "23.5 GiB",
        "seed": "none",
        "load": "3.30957, 2",
        "decay": "5e-05",
        "flag": "true",
    }


def test_devices_are_words_and_not_json() -> None:
    devices = [{"index": 0, "name": "Card", "uuid": None}, {"index": 1, "name": "Card", "uuid": "GPU-1"}]
    assert _flatten({"devices": devices}) == {"devices": "index 0, name Card; index 1, name Card, uuid GPU-1"}
