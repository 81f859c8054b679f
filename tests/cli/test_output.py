"""What all commands print through."""

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TINY, Done, only_run
from vernier.cli import _say
from vernier.cli.output import Terminal
from vernier.cli.wording import ShellWords
from vernier.references import use
from vernier.requests.declaring import options_of
from vernier.requests.registry import COMMANDS, find

TERMINAL = Terminal(ShellWords(None))


def _strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_json_has_no_infinities_and_says_where_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    TERMINAL.print_json({"a": [1.5, math.inf, {"b": math.nan}], "c": (-math.inf,), "d": "Infinity"})
    out, errors = capsys.readouterr()
    assert _strict(out) == {"a": [1.5, None, {"b": None}], "c": [None], "d": "Infinity"}
    assert errors == "not a finite number, null in the JSON: a[1], a[2].b, c[0]\n"
    TERMINAL.print_json({"a": 1.0})
    assert capsys.readouterr().err == ""


def test_infinities_of_a_foreign_file_do_not_break_the_json(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    table = tmp_path / "fleet.csv"
    rows = [f"{d},{t},{w}" for d in range(6) for t, w in ((1.0 + d / 100, "inf"), (1.01 + d / 100, "200"))]
    table.write_text("\n".join(["device,time_s,watts", *rows, "7,inf,100", "7,nan,100", "7,1e400,-inf"]) + "\n")
    columns = "step_time=time_s,device=device,power=watts"
    done = vernier_here("study", "analyze", str(table), "--columns", columns, "--json")
    assert done.code == 0, done.err
    found = _strict(done.out)
    assert found["runs"] == 12
    assert found["notes"][0] == "fleet.csv: 3 rows with no value: dropped"


ROWS = [{"name": "a" * 30, "global_batch": 2048, "source": "b" * 30, "about": "word " * 12}] * 2


@pytest.mark.parametrize(
    ("width", "left_out"),
    [(200, []), (100, ["source"]), (66, ["source", "global_batch"]), (30, ["source", "global_batch"])],
)
def test_columns_that_do_not_fit_a_terminal_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, left_out: list[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    TERMINAL.print_rows(ROWS, droppable=("source", "global_batch"), wrapped="about")
    out, errors = capsys.readouterr()
    names = ", ".join(left_out).replace("_", " ")
    shown = f"not shown: {names} (wider terminal, or --json)\n" if left_out else ""
    assert errors == shown
    assert ("b" * 30 in out) is ("source" not in left_out)
    assert ("2,048" in out) is ("global_batch" not in left_out)


def test_a_table_without_a_terminal_is_wide(capsys: pytest.CaptureFixture[str]) -> None:
    TERMINAL.print_rows(ROWS)
    out, errors = capsys.readouterr()
    assert "global_batch" in out
    assert errors == ""


HOSTILE = "\x1b]0;owned\x07\x1b[31mred\r\u202egpj.exe"


def _steering(text: str) -> list[str]:
    """Characters that a terminal would obey, but for the colours and line ends that Vernier writes itself."""
    return [repr(c) for c in text if c in "\x07\r\x1b\u202e" or 0x7F <= ord(c) <= 0x9F]


def test_names_of_strangers_do_not_steer_the_terminal(
    vernier_here: Callable[..., Done], shapes: Path, tmp_path: Path
) -> None:
    """Real folders and files with such names: a data set is inspected, verified, trained on and reported."""
    data, classes = tmp_path / "set", [f"a{HOSTILE}", "b\nvernier: all is well"]
    images = sorted((shapes / "train").rglob("*.jpg"))
    for split in ("train", "val"):
        for number, name in enumerate(classes):
            (data / split / name).mkdir(parents=True)
            for image in images[number::2][:8]:
                shutil.copy(image, data / split / name / f"{image.stem}{HOSTILE}.jpg")
            (data / split / name / os.fsdecode(b"bad \xff\xfe.jpg")).write_bytes(b"no image")
    bad = data / "val" / classes[0] / f"bad{HOSTILE}.jpg"
    bad.write_bytes(b"no image")
    commands = [
        ["data", "inspect", str(data)],
        ["data", "verify", str(data)],
        ["train", *TINY, "--data", str(data), "--out", str(tmp_path / f"runs{HOSTILE}"), "--max-steps", "1"],
        ["train", "--data", str(tmp_path / HOSTILE)],
        ["report", str(tmp_path / HOSTILE)],
        ["recipes", HOSTILE],
        [HOSTILE],
    ]
    commands[2] += ["--max-bad-images", "5"]
    for words in commands:
        done = vernier_here(*words)
        assert _steering(done.out + done.err) == [], words
        assert "\nvernier: all is well" not in done.out + done.err
    run = only_run(tmp_path / f"runs{HOSTILE}")
    evaluated = vernier_here("eval", str(run))
    assert _steering(evaluated.out + evaluated.err) == []
    assert r"bad\x1b]0;owned\x07\x1b[31mred\r\u202egpj.exe.jpg" in evaluated.out
    exact = vernier_here("eval", str(run), "--json")
    assert str(bad) in exact.json()["bad_images"][0], "JSON has the names as they are"


def test_a_log_of_a_stranger_does_not_steer_the_terminal(vernier_here: Callable[..., Done], tmp_path: Path) -> None:
    log = tmp_path / "dll.json"
    line = {"timestamp": "1", "datetime": "1", "elapsedtime": "1", "type": "LOG", "step": [0], "data": {HOSTILE: 1.0}}
    log.write_text("".join(f"DLLL {json.dumps(line)}\n" for _ in range(3)))
    table = tmp_path / "fleet.csv"
    table.write_text(
        "\n".join(["device,time_s", *(f"{HOSTILE} {d},{1 + d / 100 + t}" for d in range(6) for t in (0, 1))])
    )
    for words in (
        ["report", str(log), "--out", str(tmp_path / "page.html")],
        ["convert", str(log), "--to", "raport", "--out", str(tmp_path / HOSTILE)],
        ["study", "analyze", str(table), "--columns", "step_time=time_s,device=device"],
    ):
        done = vernier_here(*words)
        assert _steering(done.out + done.err) == [], words


def test_cells_of_a_table_and_progress_bars_are_neutralised(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    TERMINAL.print_rows([{"name": HOSTILE, "count": 1}])
    assert r"\x1b]0;owned\x07" in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    with TERMINAL.bytes_bar("set") as progress:
        progress(f"unpacking [bold]{HOSTILE}", 1, 2)
        progress(f"unpacking [bold]{HOSTILE}", 2, 2)
    drawn = capsys.readouterr().err
    assert r"[bold]\x1b]0;owned" in drawn
    assert "\x07" not in drawn


# -------------------------------------------------------------------------------------------------------------- --quiet


def test_quiet_leaves_the_result_and_warnings(
    tiny: list[str], vernier_here: Callable[..., Done], tmp_path: Path
) -> None:
    quiet = vernier_here("train", *tiny, "--max-steps", "2", "--print-every", "1", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")
    assert "result " in quiet.out
    run = quiet.out.split("run        ")[1].split("  (")[0]
    for command in (
        ["eval", run],
        ["predict", run, tiny[1], "--out", str(tmp_path / "predicted")],
        ["export", run, "--out", str(tmp_path / "model.safetensors")],
    ):
        done = vernier_here(*command, "-q")
        assert (done.code, done.err) == (0, ""), command
        assert done.out
    damaged = next((Path(run) / "checkpoints").glob("step-*")) / "model.safetensors"
    damaged.write_bytes(b"")
    assert "has no sound checkpoint" in vernier_here("eval", run, "--quiet").err


def test_quiet_does_not_change_json_and_ends_with_its_command(
    tiny: list[str], vernier_here: Callable[..., Done], shapes: Path
) -> None:
    quiet = vernier_here("train", *tiny, "--max-steps", "1", "--train-only", "--quiet", "--json")
    assert quiet.json()["status"] == "finished"
    assert quiet.err == ""
    assert vernier_here("data", "verify", str(shapes), "-q").code == 0


def test_quiet_keeps_warnings_and_leaves_out_bars(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal = Terminal(ShellWords(None), quiet=True)
    with terminal.bar("verify") as progress:
        progress(1, 2)
    terminal.say("3 steps")
    terminal.warn(f"careful: {use('out', 'x')}")
    _say("done")
    assert capsys.readouterr().err == "careful: out=x\nvernier: done\n"


def test_every_command_with_progress_has_quiet() -> None:
    classes = {name: find(name) for name in COMMANDS}
    quiet = {name for name, cls in classes.items() if cls and any(each.name == "quiet" for each in options_of(cls))}
    assert quiet == {
        *("train", "finetune", "eval", "predict", "export", "profile train", "profile infer", "tune train"),
        *("tune infer", "doctor", "bench train", "bench infer", "bench scaling", "study run"),
        *("audit", "certify", "verify", "check"),
        *("data prepare", "data verify", "data inspect", "data get"),
    }
