"""Machine files: read, checked, applied below flags, refused for other work, and written so that they can be read."""

from pathlib import Path

import pytest

from vernier.config import (
    MACHINE_FILE,
    Config,
    MachineFile,
    Tuned,
    apply_changes,
    read_machine_file,
)
from vernier.errors import ConfigError
from vernier.lab.tuning.results import machine_toml


def written(folder: Path, text: str) -> Path:
    path = folder / "machine.toml"
    path.write_text(text)
    return path


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    settings = {"threads": 4, "channels_last": False, "mode": "compile"}
    tuned = Tuned(work="train", network="resnet18", device="cpu (X)", cores=4)
    text = machine_toml(settings, tuned, {"threads": "1.1 times as fast"}, ["a headline"])
    file = read_machine_file(written(tmp_path, text))
    assert (file.settings, file.tuned) == (settings, tuned)
    assert text.startswith("# a headline\n")
    assert "threads = 4  # 1.1 times as fast\n" in text


def test_flags_and_set_win_and_a_note_says_so(tmp_path: Path) -> None:
    file = read_machine_file(written(tmp_path, "[machine]\nthreads = 3\nworkers = 5\nmode = 'compile'\n"))
    changed = apply_changes(Config(), {MACHINE_FILE: file, "machine.mode": "eager"}, ["machine.workers=1"])
    machine = changed.config.machine
    assert (machine.threads, machine.workers, machine.mode) == (3, 1, "eager")
    assert any("machine.toml: threads = 3" in note for note in changed.notes)
    assert any("workers, mode" in note for note in changed.notes)
    assert "machine.threads" in changed.named


def test_another_network_than_the_tuned_one_is_noted(tmp_path: Path) -> None:
    file = read_machine_file(written(tmp_path, "[machine]\nthreads = 2\n[tuned]\nnetwork = 'resnext50'\n"))
    notes = apply_changes(Config(), {MACHINE_FILE: file}, ()).notes
    assert any("tuned for resnext50" in note for note in notes)


def test_a_file_for_inference_is_refused_for_training(tmp_path: Path) -> None:
    path = written(tmp_path, "[machine]\nengine = 'onnxruntime'\n[tuned]\nwork = 'infer'\n")
    read_machine_file(path).refuse_other_work("infer")
    with pytest.raises(ConfigError) as refused:
        read_machine_file(path).refuse_other_work("train")
    assert refused.value.given == {"machine": str(path)}
    assert [name for name, _ in refused.value.works] == ["tune.train"]
    path = written(tmp_path, "[machine]\nthreads = 2\n")
    read_machine_file(path).refuse_other_work("train")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[machine]\nthreads = 'two'\n", r"machine.toml: machine.threads = two"),
        ("[machine]\nthreads = 0\n", "out of range"),
        ("[machine]\nthreats = 2\n", r"Unknown setting 'machine.threats'"),
        ("[recipe]\nseed = 1\n", r"has 'recipe'.*\[machine\]"),
        ("threads = 2\n", "has 'threads'"),
        ("machine = 2\n", "must be tables"),
        ("[machine\n", "is not valid TOML"),
        ("[tuned]\nwork = 'sleep'\n", "is not one of: train, infer"),
    ],
)
def test_wrong_files_are_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_machine_file(written(tmp_path, text))


def test_a_machine_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read the machine file"):
        read_machine_file(tmp_path / "none.toml")


def test_another_machine_is_noted() -> None:
    file = MachineFile(path=Path("m.toml"), settings={}, tuned=Tuned(device="cpu (A)", cores=4))
    assert file.notes_on("cpu (A)", 4) == ()
    assert "cpu (A) with 4 cores, and this is cpu (B) with 1 core" in file.notes_on("cpu (B)", 1)[0]
    assert MachineFile(path=Path("m.toml"), settings={}).notes_on("cpu (B)", 1) == ()
