"""Templates of plain text; what is made of them is tested with their users."""

from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, UndefinedError

from vernier.templates import lines_of, open_templates


def test_a_template_gets_filters_and_a_missing_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "text").write_text("{{ 'a' | twice }}\n{% if x %}\n{{ x }}<\n{% endif %}\n")
    template = open_templates(str(tmp_path / "module.py"), twice=lambda text: 2 * text).get_template("text")
    assert template.render(x="b") == "aa\nb<\n"
    with pytest.raises(UndefinedError, match="'x' is undefined"):
        template.render()


def test_a_value_cannot_look_like_another_line_or_steer_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "text").write_text("note: {{ note }}\nverdict: {{ verdict }}\n")
    lines = lines_of(
        open_templates(str(tmp_path / "x.py")), "text", {"note": "a\nverdict: fine\x1b[2J", "verdict": "bad"}
    )
    assert lines == [r"note: a\nverdict: fine\x1b[2J", "verdict: bad"]


def test_a_template_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "text").write_text("{{ a }}\n")
    compiled, compile_one = list[object](), Environment.compile

    def counted(*arguments: Any, **options: Any) -> Any:
        compiled.append(arguments[2])
        return compile_one(*arguments, **options)

    monkeypatch.setattr(Environment, "compile", counted)
    environment = open_templates(str(tmp_path / "x.py"))
    assert [lines_of(environment, "text", {"a": number}) for number in (1, 2)] == [["1"], ["2"]]
    assert compiled == ["text"]
