"""Tuning from Python: the machine file, what was measured, and what is refused before anything is."""

from pathlib import Path
from typing import Any

import pytest

import vernier as v
from tests.refusals import names_given, what_works
from vernier.config import read_machine_file
from vernier.lab.api.tuning import prepare
from vernier.lab.records.bench import TunedSetting
from vernier.lab.requests.tuning import TuneInfer, TuneTrain
from vernier.lab.tuning.search import Search


@pytest.fixture
def nothing_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that ends at once."""

    def run(search: Search) -> None:
        search.settings.append(TunedSetting(name="threads", before="2", chosen="2", left_out="no other"))

    monkeypatch.setattr(Search, "run", run)


@pytest.mark.usefixtures("nothing_to_try")
def test_tuning_returns_what_was_measured_and_the_file(tmp_path: Path) -> None:
    out = tmp_path / "machine.toml"
    tuning = v.tune_infer("resnet8-small", batch=8, out=out, settings={"machine.threads": 1}, quiet=True)
    assert tuning.path == out
    assert tuning.machine == {"eval_batch": 8, "threads": 1}
    assert tuning.table()[0]["result"] == "not tried: no other"
    assert str(out) in repr(tuning)
    assert read_machine_file(Path(tuning)).settings == tuning.machine
    with pytest.raises(v.ConfigError) as refused:
        v.tune_train("resnet8-small", out=out)
    assert (refused.value.given, refused.value.works) == ({"out": str(out)}, [("overwrite", True)])
    assert v.tune_train("resnet8-small", out=out, overwrite=True, quiet=True).result.work == "train"


@pytest.mark.usefixtures("nothing_to_try")
def test_the_old_function_is_the_new_ones_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(FutureWarning, match="tune_infer"):
        assert v.tune("resnet8-small", "infer", out=tmp_path / "m.toml", quiet=True).result.work == "infer"
    with pytest.raises(v.ConfigError, match="traim"):
        v.tune(kind="traim")


def test_an_interrupted_tuning_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Search) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "run", run)
    with pytest.raises(v.Interrupted) as interrupted:
        v.tune_train("resnet8-small", out=tmp_path / "machine.toml", quiet=True)
    assert interrupted.value.path is None
    assert not list(tmp_path.iterdir())


def test_the_same_command_completes_an_interrupted_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def run(search: Search) -> None:
        for name in ("convolution", "threads")[len(search.settings) :]:
            if len(tried) == 1 and not search.settings[1:] and not continued:
                raise SystemExit
            tried.append(name)
            search.settings.append(TunedSetting(name=name, before="2", chosen="2"))
            search.spent_s += 60
            search.keep()

    continued: list[float] = []
    monkeypatch.setattr(Search, "run", run)
    command = {"out": tmp_path / "machine.toml", "quiet": True}
    with pytest.raises(SystemExit):  # which nothing handles, like a kill
        v.tune_train("resnet8-small", **command)
    continued.append(1)
    other = v.tune_train("resnet8-small", **command, batch=8, overwrite=True)
    assert len(other.result.settings) == 2
    assert tried == ["convolution", "convolution", "threads"], "another search continues nothing"
    tried.clear()
    continued.clear()
    with pytest.raises(SystemExit):
        v.tune_train("resnet8-small", **command, overwrite=True)
    continued.append(1)
    result = v.tune_train("resnet8-small", **command, overwrite=True).result
    assert [setting.name for setting in result.settings] == tried == ["convolution", "threads"]
    assert result.seconds >= 60, "with the time of the first session"
    assert [path.name for path in tmp_path.iterdir()] == ["machine.toml"]


def test_two_searches_for_one_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "machine.toml"

    def run(search: Search) -> None:
        with pytest.raises(v.ConfigError) as refused:
            v.tune_infer("resnet8-small", out=out, quiet=True)
        assert refused.value.given == {"out": str(out)}

    monkeypatch.setattr(Search, "run", run)
    assert v.tune_train("resnet8-small", out=out, quiet=True).path == out


def test_what_is_given_is_not_tried(tmp_path: Path) -> None:
    prepared = prepare(
        TuneTrain(recipe="shapes-quick", settings=("machine.workers=1",), device="cpu", out=str(tmp_path / "m.toml"))
    )
    assert {"workers", "device"} <= prepared.situation.fixed
    assert (prepared.situation.work, prepared.situation.real_data) == ("train", True)
    assert prepared.situation.own_batch
    assert not prepare(TuneInfer(recipe="resnet8-small", out=str(tmp_path / "m.toml"))).situation.allow_split
    assert not prepare(TuneTrain(recipe="shapes-quick", batch=8, out=str(tmp_path / "m.toml"))).situation.own_batch


@pytest.mark.parametrize(
    ("options", "given", "works"),
    [
        ({"out": "nowhere/machine.toml"}, "out", ""),
        ({"out": "machine.txt"}, "out", ""),
        ({"out": "folder.toml"}, "out", "overwrite=true"),
        ({"out": "folder.toml", "overwrite": True}, "out", ""),
        ({"time": "0s"}, "time", ""),
        ({"time": 10}, "time", ""),
        ({"batch": 0}, "batch", ""),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_measured(
    options: dict[str, Any], given: str, works: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(v.ConfigError) as refused:
        v.tune_train("resnet8-small", **options)
    assert (names_given(refused.value), what_works(refused.value)) == (given, works)
