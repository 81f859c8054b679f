"""What a notebook shows of an object.

A notebook shows those sections of the report page that hold the object's figures, in a frame: the page brings its own
style and scripts, and nothing in it can reach the notebook.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.errors import ConfigError
from vernier.records.run import EvalResult

if TYPE_CHECKING:
    from vernier.report.page.subjects import Subject

FRAME_HEIGHT_PX = 640


def format_result(result: EvalResult) -> str:
    """The most important figures of an evaluation in one line."""
    from vernier.report.live.console import format_figures

    return format_figures(result.figures).replace("  ", ", ") + ("" if result.exact else ", only part of the set")


def frame_of_paths(caption: str, paths: Sequence[Path], sections: Sequence[str]) -> str:
    """HTML for a notebook: the caption, and the page's sections of these names about some runs.

    The caption alone if there is nothing to show yet.
    """
    from vernier.report.page.collect import collect

    try:
        return frame(caption, collect(paths), sections)
    except ConfigError:
        return _caption(caption)


def frame(caption: str, subjects: "Sequence[Subject]", sections: Sequence[str]) -> str:
    """HTML for a notebook: the caption, and the page's sections of these names, in this order, about some subjects."""
    from markupsafe import Markup

    from vernier.report.page.build import build

    page = build(list(subjects))
    by_name = {section.name: section for section in page.sections}
    chosen = tuple(by_name[name] for name in sections if name in by_name)
    html = replace(page, top=Markup(""), sections=chosen).html()
    return _caption(caption) + Markup(
        '<iframe srcdoc="{}" title="{}" sandbox="allow-scripts allow-downloads" '
        'style="width:100%;height:{}px;border:0"></iframe>'
    ).format(html, caption, FRAME_HEIGHT_PX)


def _caption(text: str) -> str:
    from markupsafe import Markup

    return Markup('<pre style="white-space:pre-wrap">{}</pre>').format(text)
