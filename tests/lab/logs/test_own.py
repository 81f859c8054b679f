"""Vernier's own runs and benchmarks as logs, damaged and old ones too."""

from pathlib import Path

import pytest

from tests.lab.logs.conftest import TIMES
from tests.report.bench_results import step_result, step_row, write_bench
from tests.report.run_dirs import step_times, write_run
from vernier.config import Config, Recipe, to_dict
from vernier.errors import ConfigError
from vernier.lab.logs.model import RunLog
from vernier.lab.logs.reading import open_logs, open_side
from vernier.lab.logs.work import trace_of
from vernier.lab.records.bench import BenchRequest, BenchResult, Round

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "0.1"


def test_a_run_directory_is_recorded_step_by_step(run: RunLog) -> None:
    assert [s.seconds for s in run.steps] == pytest.approx(TIMES)
    assert [s.steady for s in run.steps[:3]] == [False, True, True]
    assert [(s.epoch, s.step) for s in run.steps[98:102]] == [(0, 98), (0, 99), (1, 100), (1, 101)]
    assert [(e.epoch, e.values["top1"]) for e in run.evals] == [(0, 51.0), (1, 52.0), (2, 53.0)]
    assert trace_of(run).window.samples_per_s == pytest.approx(32 * 299 / sum(TIMES[1:]))


@pytest.mark.parametrize(
    "damage",
    [
        '{"kind": "step", "step": 1, "step_s": ["x"], "wait_s": [0.1], "loss": 1, "lr": 1}',
        '{"kind": "step", "step": 1}',
        '{"kind": "eval"}',
        "5",
        "[]",
    ],
)
def test_damaged_events_are_left_out(tmp_path: Path, damage: str) -> None:
    path = write_run(tmp_path, "a", step_times(1, n=50))
    with (path / "events.jsonl").open("a") as f:
        f.write(damage + "\n")
    (run,) = open_logs(path)
    assert len(run.steps) == 50
    assert damage in ("5", "[]") or "1 damaged event left out" in run.notes[0]


@pytest.mark.parametrize(
    "rounds", ["[1]", '[{"arm": "a", "result": 5}]', '[{"arm": "a", "result": {"images_per_step": 8}}]', "[]"]
)
def test_damaged_bench_results_get_a_message(tmp_path: Path, rounds: str) -> None:
    (tmp_path / "b.json").write_text(f'{{"rounds": {rounds}}}')
    with pytest.raises(ConfigError):
        open_logs(tmp_path / "b.json")


def test_a_configuration_must_be_named_where_there_are_several(tmp_path: Path) -> None:
    rounds = tuple(
        Round(configuration=configuration, round=0, order=i, result=step_result((0.1,) * 5))
        for i, configuration in enumerate(("old", "new"))
    )
    path = write_bench(tmp_path, BenchResult(rounds=rounds)) / "bench.json"
    assert len(open_side([f"{path}#old"])) == 1
    with pytest.raises(ConfigError, match=r"2 configurations\. Name one"):
        open_side([str(path)])
    with pytest.raises(ConfigError, match=r"no configuration 'odl'\. Did you mean old"):
        open_side([f"{path}#odl"])


def test_a_configuration_has_the_settings_of_a_run_and_its_own(tmp_path: Path) -> None:
    asked = BenchRequest(what="infer", config=to_dict(Config(recipe=Recipe(name="small"))))
    row = step_row(8, 80.0, scenario="single-stream", precision="bf16")
    rounds = (
        Round(configuration=row.configuration, round=0, order=0, result=step_result((0.1,) * 5, images_per_step=8)),
    )
    (run,) = open_logs(write_bench(tmp_path, BenchResult(asked=asked, rows=(row,), rounds=rounds)))
    assert (run.settings["recipe"]["name"], run.settings["scenario"]) == ("small", "single-stream")
    assert run.settings["machine"]["precision"] == "bf16"
    assert run.ran is not None
    assert (run.ran.kind, run.ran.network, run.ran.batch_per_device) == ("infer", "resnet50", 8)


def test_a_run_of_version_0_1_says_what_ran() -> None:
    (run,) = open_logs(GOLDEN / "classifier")
    assert run.ran is not None
    assert (run.ran.network, run.ran.image_px, run.ran.classes) == ("resnet8-small, width 8", 32, 10)
    assert run.ran.vernier.startswith("0.1.0")
