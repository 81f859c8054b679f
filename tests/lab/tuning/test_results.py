"""The table, the headline and the machine file of a search."""

from dataclasses import replace
from pathlib import Path

from vernier.config import Config, read_machine_file
from vernier.lab.records.bench import Confirmation, TunedSetting, TunedValue, TuneResult
from vernier.lab.tuning.candidates import Situation
from vernier.lab.tuning.results import (
    closing_lines,
    file_text,
    headline,
    make_result,
    table,
)
from vernier.lab.tuning.search import Search
from vernier.references import plain

CPU = Situation(work="train", device="cpu", cores=2, real_data=False)
FASTER = TunedValue(
    shown="false",
    machine={"channels_last": False},
    verdict="chosen",
    images_per_s=12.0,
    ratio=1.2,
    low=1.15,
    high=1.25,
    rates=(12.0,) * 5,
)
LAYOUT = TunedSetting(name="channels_last", before="true", chosen="false", values=(FASTER,), rates=(10.0,) * 5)
WORKERS = TunedSetting(name="workers", before="2", chosen="2", left_out="random pixels need no loading")
FAILED = TunedValue(shown="compile", machine={"mode": "compile"}, verdict="not measured", why="no compiler")
MODE = TunedSetting(name="mode", before="eager", chosen="eager", values=(FAILED,), rates=(10.0,))


def confirmation(low: float) -> Confirmation:
    return Confirmation(default_rates=(10.0,) * 4, chosen_rates=(12.0,) * 4, ratio=1.2, low=low, high=1.3)


def searched(situation: Situation = CPU) -> Search:
    search = Search(config=Config(), situation=situation, machine=None, minutes=5, notes=["a note"])  # type: ignore[arg-type]
    search.settings += [LAYOUT, WORKERS, MODE]
    search.chosen |= {"channels_last": False}
    return search


def result(low: float | None = 1.1, *, stopped: bool = False, situation: Situation = CPU) -> TuneResult:
    search = searched(situation)
    search.confirmation = None if low is None else confirmation(low)
    return make_result(search, seconds=61, stopped=stopped)


def test_every_value_has_a_row_with_its_interval_or_the_reason() -> None:
    rows = table([LAYOUT, WORKERS, MODE])
    assert [row["setting"] for row in rows] == ["channels_last", "", "workers", "mode", ""]
    assert rows[1]["times as fast"] == "1.200 [1.150, 1.250]"
    assert rows[1]["result"] == "chosen"
    assert rows[2]["result"] == "not tried: random pixels need no loading"
    assert rows[3]["result"] == "in use before, stays"
    assert rows[4]["result"] == "not measured: no compiler"


def test_only_what_new_processes_confirm_is_written() -> None:
    assert result().machine == {"channels_last": False}
    assert headline(result()).startswith("confirmed: 1.200 [1.100, 1.300] times as fast")
    for other in (result(0.99), result(None), result(stopped=True)):
        assert other.machine == {}
    assert "NOT confirmed" in headline(result(0.99))
    assert "the defaults stay" in headline(result(0.99))
    assert "NOT confirmed: the new measurement failed" in headline(result(None))
    assert "no setting was certainly faster" in headline(replace(result(None), settings=(WORKERS,)))
    assert "nothing was written" in headline(result(stopped=True))


def test_the_file_can_be_read_and_says_what_each_choice_bought(tmp_path: Path) -> None:
    text = file_text(result(), searched())
    (tmp_path / "machine.toml").write_text(text)
    file = read_machine_file(tmp_path / "machine.toml")
    assert file.settings == {"channels_last": False}
    assert file.tuned is not None
    assert file.tuned.cores == 2
    assert "channels_last = false  # 1.200 [1.150, 1.250] times as fast as true" in text


def test_what_was_given_and_the_batch_of_inference_are_written() -> None:
    situation = Situation(
        work="infer", device="cpu", cores=2, real_data=True, fixed=frozenset({"threads", "precision"})
    )
    machine = result(None, situation=situation).machine
    assert machine == {"eval_batch": 256, "threads": None}


def test_the_last_lines_say_how_to_use_the_file() -> None:
    lines = closing_lines(replace(result(), file=Path("machine.toml")))
    assert plain(lines[-1]) == "use it     vernier train ... machine=machine.toml"
    assert "- a note" in lines
    assert "time       1:01" in lines
