from tests.measure.bench.sample_rounds import rounds
from vernier.measure.bench.rows import pool_rounds
from vernier.measure.bench.table import markdown, notes, tables
from vernier.records.bench import ArmComparison, ArmFailure, ArmLabels, BenchResult, Round, StepRow


def test_a_note_that_holds_for_several_rows_is_written_once() -> None:
    refused = ArmFailure(status="refused", why="no hardware")
    every = [Round(arm=n, round=0, order=0, result=refused) for n in ("batch=1", "batch=2")]
    every += rounds("batch=4", [1.0] * 40, [1.0] * 40)
    rows = [pool_rounds(n, ArmLabels(batch=int(n[-1])), every) for n in ("batch=1", "batch=2", "batch=4")]
    lines = notes(rows)
    assert lines[0] == "batch=1, batch=2: refused: no hardware"
    assert notes(rows[:2])[0] == "all rows: refused: no hardware"
    assert "energy: unknown, this machine has no counter for it" in lines
    (table,) = tables(rows)
    assert "per device" not in table[0]  # with one device it would repeat the total
    assert "J/img" not in table[0]


def test_a_rate_that_is_not_known_has_no_interval_printed() -> None:
    row = pool_rounds("batch=1", ArmLabels(batch=1), rounds("batch=1", [0.1] * 40, [1.0] * 40))
    assert isinstance(row, StepRow)
    assert row.images_per_s_total.high is not None
    assert row.images_per_s_total.high > 1000 * row.images_per_s_total.value
    assert tables([row])[0][0]["img/s total"] == "18.2 [could be 10 times that]"
    assert any("give more --repeats" in line for line in notes([row]))


def test_markdown_has_a_line_per_row_and_the_comparisons_below() -> None:
    row = pool_rounds("batch=8", ArmLabels(batch=8), rounds("batch=8", [1.0] * 40, [1.0] * 40))
    comparison = ArmComparison(
        arm="batch=8 side=here",
        against="batch=8 side=v1",
        ratio=1.02,
        low=1.01,
        high=1.03,
        verdict="faster",
        tolerance=0.01,
        within_tolerance=False,
        a_samples_per_s=1.0,
        b_samples_per_s=1.02,
        runs=(5, 5),
        steps=(50, 50),
        basis="5 rounds",
    )
    text = markdown("bench-train-x", BenchResult(rows=(row,), compared=(comparison,)))
    assert text.startswith("# bench-train-x\n\n| batch | img/s total |")
    assert "\n| 8 | 10.0 [10.0, 10.0] |" in text
    assert "- batch=8 side=here: 1.0200 [1.0100, 1.0300] times the speed of batch=8 side=v1: faster" in text
