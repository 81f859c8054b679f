"""The libFuzzer target: builds, has nothing to report about its corpus, and would notice what it is for."""

from pathlib import Path

import pytest

from . import __main__ as native

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(native.missing()), reason="clang or libjpeg's headers")]


def test_the_corpus_and_some_new_inputs_are_decoded_as_by_libjpeg(tmp_path: Path) -> None:
    code, text = native.fuzz(5_000, 20261119, tmp_path)
    assert code == 0, text
    words = text.split()
    counts = dict(zip(words[1::2], map(int, words[::2]), strict=True))
    assert counts["compared"] > 50
    assert counts["rewritten"] > 5


def test_a_decoder_that_skips_a_check_of_libjpeg_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (native.KERNELS / "stream.h").read_text()
    check = "if (count[length] && code >= 1 << length) return false;"
    assert check in code
    for name in ("stream.h", "resize.h", "exported.h", "windows.cpp", "restarts.cpp"):
        (tmp_path / name).write_text((native.KERNELS / name).read_text().replace(check, ""))
    monkeypatch.setattr(
        native, "SOURCES", [native.HERE / "jpeg.cpp", tmp_path / "windows.cpp", tmp_path / "restarts.cpp"]
    )
    code, text = native.fuzz(200_000, 7, tmp_path / "work")
    assert code != 0
    assert "DIFFERENCE: " in text, text
