"""`python -m tests.documentation`, or `make pages`: write the generated pages again, and the outputs that pages show.

python -m tests.documentation                   # the reference, recipes, features and figures of models
python -m tests.documentation --outputs         # and every output: half an hour
python -m tests.documentation --outputs own     # only the outputs of pages whose name contains this
"""

import argparse

from tests.api import reference as python_reference
from tests.conftest import REPO
from tests.documentation import models, outputs, recipes, reference, stubs
from tests.five_systems.__main__ import page as five_systems
from tests.golden import help_texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--outputs", nargs="?", const="", metavar="PAGE", help="run commands and write their output")
    asked = parser.parse_args().outputs
    # First, since the pages list models.
    models.FILE.write_text(models.text(), encoding="utf-8")
    docs = REPO / "docs"
    made = {**reference.pages(), docs / "recipes.md": recipes.page(), docs / "five-systems.md": five_systems()}
    made |= {stubs.FILE: stubs.text(), python_reference.FILE: python_reference.page()}
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    help_texts.write()
    if asked is not None:
        outputs.write(asked)


if __name__ == "__main__":
    main()
