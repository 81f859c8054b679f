"""Any log is recognised, and damaged ones are read as far as possible."""

import shutil
from pathlib import Path

import pytest

from tests.report.bench_results import step_result, write_bench
from tests.report.run_dirs import step_times, write_run
from vernier.errors import ConfigError
from vernier.lab.logs.reading import open_logs, open_to_convert
from vernier.lab.logs.writing import convert_all
from vernier.lab.records.bench import BenchResult, Round

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "0.1"


def test_copies_have_the_same_content_and_other_runs_have_not(tmp_path: Path) -> None:
    original = write_run(tmp_path, "a", step_times(1, n=50))
    copied = shutil.copytree(original, tmp_path / "copy")
    other = write_run(tmp_path, "b", step_times(2, n=50))
    contents = [open_logs(path)[0].content for path in (original, copied, other)]
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        ("", "is empty"),
        ("W0301 warning, something, odd\nstarted\n", "first line is 'W0301 warning, something, odd'"),
        ("step,loss\n1,2\n2,3\n", "looks like a table"),
        ("Iteration Duration 0 0 : 0.5\n", "has iteration durations"),
        ("<!DOCTYPE html><html></html>", "first line is '<!DOCTYPE html>"),
        ("hello\nTraceback (most recent call last):\n", "a Python error"),
        ("\0\0\0\1\2", "is not text"),
        ('{"epochs": 3, "loss": 1}', "JSON with the keys epochs, loss"),
    ],
)
def test_a_file_that_cannot_be_read_is_described(tmp_path: Path, text: str, looks: str) -> None:
    """The message was a list of "columns": the words of the log's first line."""
    (tmp_path / "x.log").write_text(text)
    with pytest.raises(ConfigError, match=looks) as error:
        open_logs(tmp_path / "x.log")
    assert "an MLPerf log" in str(error.value)


def test_several_runs_cannot_be_converted_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path, name, step_times(1, n=50))
    with pytest.raises(ConfigError, match=r"holds 2 runs\. Give one of them: "):
        open_to_convert(str(tmp_path))
    with pytest.raises(ConfigError, match="does not exist"):
        open_to_convert(str(tmp_path / "nothing"))


def test_all_configurations_of_a_benchmark_are_converted_or_the_one_that_is_named(tmp_path: Path) -> None:
    """FILE#ARM was the advice, and FILE#ARM did not exist."""
    rounds = tuple(
        Round(configuration=configuration, round=n, order=0, result=step_result((0.1,) * 5))
        for configuration in ("old", "new")
        for n in range(2)
    )
    path = write_bench(tmp_path, BenchResult(rounds=rounds)) / "bench.json"
    assert {configuration: len(log.steps) for configuration, log in open_to_convert(str(path)).items()} == {
        "old": 10,
        "new": 10,
    }
    assert set(open_to_convert(str(path.parent))) == {"old", "new"}
    (one,) = open_to_convert(f"{path}#new").values()
    assert [s.epoch for s in one.steps] == [0] * 5 + [1] * 5
    with pytest.raises(ConfigError, match="no configuration 'neww'"):
        open_to_convert(f"{path}#neww")
    written = convert_all(open_to_convert(str(path)), "raport", tmp_path / "r.json")
    assert [p.name for p in written] == ["r.old.json", "r.new.json"]
    with pytest.raises(ConfigError, match="exists already"):
        convert_all(open_to_convert(str(path)), "raport", tmp_path / "r.json")


def test_only_a_benchmark_has_configurations(tmp_path: Path) -> None:
    (tmp_path / "raport.json").write_text('{"iter": {}, "epoch": {}}')
    with pytest.raises(ConfigError, match="is not a benchmark, so it has no configuration 'a'"):
        open_to_convert(f"{tmp_path / 'raport.json'}#a")
