"""The Python of the documentation runs: every block of docs/python.md, and the notebook, on small data."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

import vernier
from tests.api import reference
from tests.api.notebook import NOTEBOOK, PARAMETERS, execute
from tests.api.page import PAGE, outputs, prepare, with_outputs
from vernier.api.functions import _options_in_python
from vernier.lab.requests.finetuning import Finetune

TINY_CELL = """
DATA, EPOCHS = {data!r}, 1
OPTIONS = {{"max_steps": 2, "settings": {{"machine.threads": 1}}, "tensorboard": False}}
"""


def test_every_block_of_the_page_runs_and_shows_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures depend on the data and the machine; what kind of thing is shown, and every error, does not."""
    prepare(tmp_path, train=64, val=20)
    text = PAGE.read_text(encoding="utf-8")
    shown = [output for _, output in outputs(text, tmp_path)]
    documented = re.findall(r"```python\n.*?^```\n\n```text\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    assert len(documented) == len(shown) > 12
    for ours, theirs in zip(shown, documented, strict=True):
        assert _kind(ours) == _kind(theirs)
        if "Error: " in theirs:
            assert ours == theirs.rstrip("\n")
    assert with_outputs(text, [block.rstrip("\n") for block in documented]) == text
    assert "--" not in "".join(shown)


def _kind(output: str) -> str:
    """What an output is without its figures: `Run(`, `Prediction(`, a list, a tuple, a table with its heading."""
    if output.startswith("["):
        return "list"
    return re.sub(r"[\d.]+", "0", re.split(r"[(\n]|: ", output, maxsplit=1)[0]).strip()


def test_the_reference_is_that_of_the_source() -> None:
    text = reference.FILE.read_text(encoding="utf-8")
    assert text == reference.page(), "run make pages"
    assert all(f"## `{name}`" in text for name in vernier.__all__ if not name.startswith("_"))
    assert all(f"{option.name}={option.default!r}" in text for option in _options_in_python(Finetune)[1:2])


def test_the_notebook_runs_in_a_kernel_and_shows_figures(shapes: Path, tmp_path: Path) -> None:
    if not (find_spec("nbclient") and find_spec("ipykernel")):  # not imported here: this process is no notebook
        pytest.skip("needs nbclient and ipykernel")
    cells = execute(tmp_path, TINY_CELL.format(data=str(shapes))).cells
    results = [[o for o in cell.get("outputs", ()) if o.output_type != "stream"] for cell in cells]
    (run,) = next(o for o in results if o and "text/html" in o[0].data)
    assert "<iframe srcdoc=" in run.data["text/html"]
    assert run.data["text/plain"].startswith("Run(runs/")
    streams = [o for cell in cells for o in cell.get("outputs", ()) if o.output_type == "stream"]
    assert {o.name for o in streams} == {"stdout"}, "a notebook shows standard error in red"
    assert "stopping at 2" in "".join(o.text for o in streams)
    assert results[-2][0].data["text/plain"].startswith("('")


def test_the_notebook_is_committed_with_its_outputs_and_small() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [PARAMETERS in cell["metadata"].get("tags", ()) for cell in code].count(True) == 1
    assert all(cell["outputs"] for cell in code[1:])
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert NOTEBOOK.stat().st_size < 300_000
    assert not re.search(r"/root/|/work/|/tmp/", NOTEBOOK.read_text(encoding="utf-8"))
