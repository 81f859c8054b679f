"""Objects in notebooks.

A notebook shows those sections of the report page that hold the object's figures, in a frame: the page brings its own
style and scripts, and nothing in it can reach the notebook.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.errors import ConfigError

if TYPE_CHECKING:
    from vernier.report.page.subjects import Subject

FRAME_HEIGHT_PX = 640


def frame(caption: str, subjects: "Sequence[Path | Subject]", sections: Sequence[str]) -> str:
    """HTML for a notebook: the caption, and the page's sections of these names, in this order, about some subjects.

    Subjects are read from their paths. The caption alone if there is nothing to show yet.
    """
    from markupsafe import Markup

    from vernier.report.page.build import build
    from vernier.report.page.collect import collect
    from vernier.report.page.subjects import Subject

    text = Markup('<pre style="white-space:pre-wrap">{}</pre>').format(caption)
    read = [each for each in subjects if isinstance(each, Subject)]
    try:
        page = build(read or collect([each for each in subjects if isinstance(each, Path)]))
    except ConfigError:
        return text
    # A section that has nothing to show is not on the page.
    by_name = {section.name: section for section in page.sections}
    chosen = tuple(by_name[name] for name in sections if name in by_name)
    html = replace(page, top=Markup(""), sections=chosen).html()
    return text + Markup(
        '<iframe srcdoc="{}" title="{}" sandbox="allow-scripts allow-downloads" '
        'style="width:100%;height:{}px;border:0"></iframe>'
    ).format(html, caption, FRAME_HEIGHT_PX)
