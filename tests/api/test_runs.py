"""A run as an object."""

import copy
import math
import sys
from pathlib import Path

import pytest

import vernier as v
from tests.report.bench_results import bench_run
from vernier.api.runs import Events, Result
from vernier.records.events import EvalEvent, StepEvent
from vernier.records.run import EvalResult


def test_the_result_has_the_figures_as_attributes(tiny_run: v.Run) -> None:
    result = tiny_run.result
    assert result.samples == 50
    assert result.top1 == result.figures["top1"] == tiny_run.events("eval")[-1].figures["top1"]
    assert {"top1", "top5", "loss"} <= set(dir(result))
    assert "AP" not in dir(result)
    assert repr(result).startswith("Result(top-1 ")
    assert copy.copy(result).top1 == result.top1


def test_a_figure_that_is_not_there_is_named_with_those_that_are(tiny_run: v.Run) -> None:
    with pytest.raises(AttributeError, match="This result has no 'AP': it has top1, top5, loss"):
        tiny_run.result.AP  # noqa: B018
    assert not hasattr(tiny_run.result, "AP50")
    assert math.isnan(Result(EvalResult(figures={"AP": None})).AP)


def test_events_are_records_of_one_kind_or_of_all(tiny_run: v.Run) -> None:
    assert {type(event) for event in tiny_run.events("step")} == {StepEvent}
    assert {type(event) for event in tiny_run.events("eval")} == {EvalEvent}
    assert len(tiny_run.events()) > len(tiny_run.events("step")) > 0
    assert "2 eval" in repr(tiny_run.events())
    with pytest.raises(v.ConfigError, match=r"no events of the kind 'stp'\. Did you mean step"):
        tiny_run.events("stp")


def test_events_become_a_table_of_pandas(tiny_run: v.Run) -> None:
    pytest.importorskip("pandas")
    table = tiny_run.events("eval").to_pandas()
    assert list(table["step"]) == [10, 12]
    assert {"top1", "loss", "seconds"} <= set(table.columns)


def test_without_pandas_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(v.ConfigError, match=r"needs pandas: pip install 'vernier\[pandas\]'"):
        Events[StepEvent]().to_pandas()


def test_a_run_is_opened_by_its_path_or_that_of_its_folder(tiny_run: v.Run) -> None:
    assert v.open_run(str(tiny_run.path)) == v.open_run(tiny_run.path.parent) == v.Run(tiny_run) == tiny_run
    assert Path(tiny_run) == tiny_run.path
    assert len({tiny_run, v.Run(tiny_run)}) == 1


def test_what_is_no_run_is_explained(tmp_path: Path) -> None:
    with pytest.raises(v.ConfigError, match="is not a run directory"):
        v.open_run(tmp_path)
    with pytest.raises(v.ConfigError, match="takes a path, not 3"):
        v.open_run(3)  # type: ignore[arg-type]
    bench = bench_run(tmp_path / "bench")
    with pytest.raises(v.ConfigError, match=r"is a benchmark: vernier\.Benchmark\("):
        v.open_run(bench)


def test_a_run_that_was_never_evaluated_says_so(tiny_run: v.Run, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(tiny_run.path, tmp_path / "run", ignore=shutil.ignore_patterns("run.json", "events.jsonl"))
    run = v.open_run(tmp_path / "run")
    assert run.status == "unknown"
    assert repr(run).endswith("unknown)")
    with pytest.raises(v.ConfigError, match="has no evaluation"):
        run.result  # noqa: B018


def test_the_page_lies_in_the_run_or_where_it_is_wanted(tiny_run: v.Run, tmp_path: Path) -> None:
    assert tiny_run.report() == tiny_run.path / "report.html"
    assert tiny_run.report(tmp_path / "new" / "page.html") == tmp_path / "new" / "page.html"
    assert (tmp_path / "new" / "page.html").stat().st_size == tiny_run.report().stat().st_size


def test_a_run_is_one_line_of_text_and_figures_in_a_notebook(tiny_run: v.Run) -> None:
    line = repr(tiny_run)
    assert line == f"Run({tiny_run.path}, finished, {repr(tiny_run.result)[7:-1]})"
    html = tiny_run._repr_html_()
    assert html.startswith("<pre ")
    assert 'sandbox="allow-scripts allow-downloads"' in html
    assert "Training loss" in html or "loss" in html
