import pytest

from tests.lab.bench.sample_rounds import rounds
from vernier.lab.bench.rows import pool_rounds
from vernier.lab.bench.table import describe_spent, format_rate, markdown, notes, result_notes, tables
from vernier.lab.records.bench import BenchResult, ConfigurationLabels, Failure, Round, StepRow
from vernier.records.statistics import Estimate
from vernier.references import plain, references


def test_a_note_that_holds_for_several_rows_is_written_once() -> None:
    refused = Failure(status="refused", why="no hardware")
    every = [Round(configuration=n, round=0, order=0, result=refused) for n in ("batch=1", "batch=2")]
    every += rounds("batch=4", [1.0] * 40, [1.0] * 40)
    rows = [pool_rounds(n, ConfigurationLabels(batch=int(n[-1])), every) for n in ("batch=1", "batch=2", "batch=4")]
    lines = notes(rows)
    assert lines[0] == "batch=1, batch=2: refused: no hardware"
    assert notes(rows[:2])[0] == "all rows: refused: no hardware"
    assert "energy: unknown, this machine has no counter for it" in lines
    (table,) = tables(rows)
    assert "per device" not in table[0]  # with one device it would repeat the total
    assert "J/img" not in table[0]


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (4.424, 3.63, 5.393, "4.4 [3.6, 5.4]"),
        (41.23, 40.2, 42.3, "41.2 [40.2, 42.3]"),
        (1234.5, 1231.9, 1237.1, "1,234 [1,232, 1,237]"),
        (1234.5, 1208.0, 1260.0, "1,230 [1,210, 1,260]"),
        (530.7, 72.7, 3871.4, "530 [73, 3,900]"),
        (10.0, 10.0, 10.0, "10.0 [10.0, 10.0]"),
        (0.0512, 0.0505, 0.0519, "0.051 [0.051, 0.052]"),
    ],
)
def test_a_rate_has_the_digits_that_its_interval_supports(value: float, low: float, high: float, shown: str) -> None:
    assert format_rate(Estimate(value=value, low=low, high=high, n=5, basis="")) == shown


def test_where_the_time_went_is_one_line() -> None:
    spent = {"total": 78.0, "measuring": 40.0, "start-up": 14.2, "phases": 0.1, "other": 3.0}
    assert describe_spent(spent) == "time: 1:18 = measuring 0:40, start-up 0:14, other 0:03"


def test_what_all_rows_share_comes_first() -> None:
    every = [*rounds("batch=1", [1.0] * 40, [1.1] * 40), *rounds("batch=2", [1.0] * 40, [1.1] * 40)]
    rows = tuple(pool_rounds(f"batch={n}", ConfigurationLabels(batch=n), every) for n in (1, 2))
    lines = result_notes(BenchResult(rows=rows, facts=("batch 1: a remark",)))
    assert lines[:2] == ["all rows: precision fp32, mode eager, procs 1", "all rows: 95 % interval: 2 processes"]
    assert lines[-1] == "batch 1: a remark"


def test_a_row_without_interval_says_how_much_longer_to_measure() -> None:
    times = [1.0 + 0.01 * (i * 7 % 5) for i in range(40)]
    row = pool_rounds("batch=1", ConfigurationLabels(batch=1), rounds("batch=1", times))
    assert tables([row])[0][0]["img/s total"] == "9.8 [no interval]"
    (line,) = [line for line in notes([row]) if "interval" in line]
    assert line.startswith("batch=1: no 95 % interval: one process: 40 samples are too few")
    works = [(each.name, each.value) for each in references(line)]
    assert works == [("steps", 190), ("max_time", "233s"), ("repeats", 2)]


def test_a_rate_that_is_not_known_has_no_interval_printed() -> None:
    row = pool_rounds("batch=1", ConfigurationLabels(batch=1), rounds("batch=1", [0.1] * 40, [1.0] * 40))
    assert isinstance(row, StepRow)
    assert row.images_per_s_total.high is not None
    assert row.images_per_s_total.high > 1000 * row.images_per_s_total.value
    assert tables([row])[0][0]["img/s total"] == "18 (processes: 100, 10)"
    assert format_rate(row.images_per_s_total) == "18.2 [could be off by 10 times]"
    assert any("use a quieter machine" in line for line in notes([row]))


def test_few_processes_that_differ_are_listed_with_the_repeats_that_would_help() -> None:
    row = pool_rounds("batch=1", ConfigurationLabels(batch=1), rounds("batch=1", [1.0] * 40, [1.2] * 40))
    assert tables([row])[0][0]["img/s total"] == "9.1 (processes: 10.0, 8.3)"
    (advice,) = [line for line in notes([row], row_s=60.0) if "would give" in line]
    assert plain(advice) == "batch=1: repeats=10 would give an interval of about +-10 %, in about 5:00"


def test_a_machine_that_others_use_was_not_measured() -> None:
    every = rounds("batch=1", [1.0] * 40, [1.01] * 40, others_cores=1.9)
    row = pool_rounds("batch=1", ConfigurationLabels(batch=1), every)
    cells = tables([row])[0][0]
    assert cells["img/s total"] == "others used 1.9 of 2 cores"
    assert cells["img/CPU s"] == "12.4"
    assert any("is not a measurement of this machine: others used 1.9 of 2 cores" in line for line in notes([row]))


def test_markdown_has_a_line_per_row_and_the_notes_below() -> None:
    row = pool_rounds(
        "batch=8", ConfigurationLabels(batch=8), rounds("batch=8", [1.0] * 40, [1.002] * 40, [0.998] * 40)
    )
    text = markdown("bench-train-x", BenchResult(rows=(row,)))
    assert text.startswith("# bench-train-x\n\n| batch | img/s total |")
    assert "\n| 8 | 10.00 [9.90, 10.04] |" in text
    assert "a slowdown of one process in 10 goes unseen in 73 % of such benchmarks (repeats=29: 5 %)" in plain(text)
