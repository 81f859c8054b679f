"""The benchmark of promises: cells that were simulated are kept, and continued where a run was cut short."""

import math
from pathlib import Path

import pytest

from tests.conftest import load_benchmark

CELLS = load_benchmark("promises/cells")


def test_cells_are_kept_and_not_simulated_again(tmp_path: Path) -> None:
    def share(rng: object, cases: int) -> float:
        simulated.append(cases)
        return 0.5

    simulated: list[int] = []
    kept = tmp_path / "kept.jsonl"
    assert CELLS.Cells("fleets", "code", 1, kept)("a", 100, share) == {"share": 0.5, "n": 100}
    with kept.open("a", encoding="utf-8") as file:
        file.write('{"subject": "fleets", "cell": "b"')  # killed while it was written
    again = CELLS.Cells("fleets", "code", 1, kept, ends_s=-math.inf)
    assert again("a", 4000, share)["n"] == 100  # the time is over: with as many cases as there are
    with pytest.raises(CELLS.OutOfTimeError):
        again("b", 100, share)
    CELLS.Cells("fleets", "code", 1, kept)("a", 400, share)
    CELLS.Cells("fleets", "changed", 1, kept)("a", 100, share)
    CELLS.Cells("fleets", "code", 2, kept)("a", 100, share)
    assert simulated == [100, 400, 100, 100]


def test_the_digest_of_a_subject_covers_what_it_measures() -> None:
    for name in (
        "intervals",
        "few_steps",
        "few_runs",
        "studies",
        "fleets",
        "fleet_intervals",
        "fleet_checks",
        "choices",
    ):
        subject = load_benchmark(f"promises/{name}")
        path = Path(str(subject.__file__))
        assert all(len(CELLS.digest(path, (part,))) == 12 for part in subject.MEASURED)
        assert len({CELLS.digest(path, ()), *(CELLS.digest(path, (part,)) for part in subject.MEASURED)}) > 1
