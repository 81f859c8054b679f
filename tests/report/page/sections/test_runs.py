"""The table of all runs."""

from pathlib import Path
from typing import Any

from tests.report.bench_results import bench_run
from tests.report.run_dirs import step_times, write_run
from vernier.report.page.build import build
from vernier.report.page.collect import FULL_RUNS, MANY_RUNS, collect
from vernier.report.page.figures import Figure, Runs
from vernier.report.page.sections.runs import _runs_table


def column(figure: Figure, name: str) -> list[Any]:
    return [row[list(figure.columns).index(name)] for row in figure.rows]


def test_results_come_first_and_then_what_differs(tmp_path: Path) -> None:
    a = write_run(tmp_path, "wide", step_times(1, n=100), recipe__model__width=32, recipe__optim__lr=0.1)
    b = write_run(tmp_path, "narrow", step_times(2, n=100), recipe__model__width=16, recipe__optim__lr=0.2)
    section = _runs_table(collect([a, b]))
    assert section is not None
    (figure,) = section.figures
    assert list(figure.columns[:3]) == ["run", "top-1 %", "img/s"]
    assert {"network", "lr"} <= set(figure.columns)
    assert not {"width", "image size", "momentum", "AP"} & set(figure.columns)
    assert column(figure, "lr") == [0.1, 0.2]
    assert column(figure, "colour") == [0, 1]
    assert _runs_table(collect([a])) is None


def test_of_many_runs_only_the_newest_have_curves_and_all_are_in_the_table(tmp_path: Path) -> None:
    count = MANY_RUNS + 3
    for i in range(count):
        write_run(tmp_path, f"r{i:02d}", [0.1] * 100, recipe__optim__lr=0.1 * (1 + i % 3))
    bench_run(tmp_path)
    subjects = collect([tmp_path])
    assert sum(not s.brief for s in subjects) == FULL_RUNS
    page = build(subjects)
    table = page.figures["runs"]
    assert isinstance(table.chart, Runs)
    assert len(table.rows) == count + 1
    assert sorted(filter(None, column(table, "top-1 %"))) == [51.0] * count
    assert all(rate for rate in column(table, "img/s"))
    assert sum(colour is not None for colour in column(table, "colour")) == FULL_RUNS
    assert "lr" in table.chart.groups
    assert table.chart.briefly
    assert len({row[0] for row in page.figures["loss"].rows}) <= FULL_RUNS
    few = collect([tmp_path / s.path.name for s in subjects[:MANY_RUNS]])
    assert not any(s.brief for s in few)


def test_a_run_that_was_read_briefly_has_the_result_and_state_that_it_has_in_full(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, f"r{i:02d}", [0.1] * 100, status="running") for i in range(MANY_RUNS + 1)]
    (full,) = collect([paths[0]])
    brief = collect(paths)[0]
    assert brief.brief
    assert (brief.status, brief.result, brief.settings) == (full.status, full.result, full.settings) != (None,) * 3
    assert brief.start == full.start


def test_damaged_files_of_runs_without_a_card_are_named(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, f"r{i:02d}", [0.1] * 100) for i in range(MANY_RUNS + 1)]
    (paths[0] / "config.json").write_text('{"schema": 99}')
    (paths[1] / "run.json").write_text("{")
    (paths[2] / "events.jsonl").unlink()
    (paths[3] / "bench.json").write_text('{"rounds": [], "rows": 5}')
    page = build(collect(paths))
    html = str(next(s for s in page.sections if s.name == "runs").html)
    assert f"{paths[0]}: left out: " in html
    assert f"{paths[3]}: left out: " in html
    assert column(page.figures["runs"], "status")[1] == "unknown"
