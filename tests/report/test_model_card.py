"""The model card of an exported file."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vernier.errors import RunFailed
from vernier.records.run import EvalResult, ExportCheck, ModelFile
from vernier.report.model_card import _escape_markdown, describe_check, write_card

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1"
CHECK = ExportCheck(
    against="onnxruntime 1.23", images=64, data="shapes", max_difference=1e-6, largest_output=5.0, same_top1=64
)


def _about(averaged: bool = True, **fields: Any) -> ModelFile:
    base = ModelFile(model="resnet8-small", classes=("cat", "dog"), eval_px=32, eval_short_side_px=32)
    return replace(base, averaged=averaged, **fields)


def _write(file: Path, run: str = "classifier", averaged: bool = True, **options: Any) -> Path:
    checkpoint = _checkpoint(run)
    return write_card(file, _about(averaged), origin=checkpoint, checkpoint=checkpoint, **options)


def _checkpoint(run: str) -> Path:
    return sorted((GOLDEN / run / "checkpoints").glob("step-*"))[-1]


def _exported(folder: Path, name: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_bytes(b"weights")
    return file


def test_the_card_of_a_run_of_an_older_version(tmp_path: Path) -> None:
    file = _exported(tmp_path, "model.onnx")
    card = _write(file, check=CHECK)
    text = card.read_text()
    for section in ("Model", "Result", "Recipe", "Data", "Trained on", "Limits", "Files"):
        assert f"\n## {section}\n" in text
    assert "top-1 10.00 %" in text
    assert "20 validation images" in text
    assert "Checked with onnxruntime 1.23 against PyTorch on 64 validation images" in text


def test_other_weights_get_a_card_of_their_own(tmp_path: Path) -> None:
    first = _write(_exported(tmp_path, "a.safetensors"))
    same = _write(_exported(tmp_path, "b.pth"))
    other = _write(_exported(tmp_path, "c.safetensors"), "detector", averaged=False)
    assert same == first
    assert "`b.pth`" in first.read_text()
    assert other.name == "c.safetensors.model_card.md"


def test_names_from_folders_cannot_format_the_card() -> None:
    assert _escape_markdown("<script>a|b\n`") == "\\<script\\>a\\|b\\`"


def test_a_check_is_described_in_a_sentence() -> None:
    assert "the same class for 64 of 64, largest difference 1e-06 of outputs up to 5" in describe_check(CHECK)


def test_a_card_that_cannot_be_written_says_that_the_export_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vernier.report.model_card.write_atomically", refuse)
    with pytest.raises(RunFailed, match="The exported file is complete"):
        _write(_exported(tmp_path, "a.onnx"))


def test_a_model_that_came_as_a_file_has_a_card_of_what_the_file_says(tmp_path: Path) -> None:
    origin = _exported(tmp_path, "theirs.pth")
    result = EvalResult(samples=50, figures={"top1": 80.0})
    for about, words in [(_about(), "nothing was evaluated here"), (_about(result=result), "top-1 80.00 % on 50")]:
        file = _exported(tmp_path / words[:3], "x.onnx")
        card = write_card(file, about, origin=origin, checkpoint=None, prepared="short side 36, centre 32")
        text = card.read_text()
        assert words in text
        assert "0 cat, 1 dog" in text
        assert "short side 36" in text
        assert "ask whoever published `theirs.pth`" in text
