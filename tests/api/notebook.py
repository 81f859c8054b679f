"""Executes the notebook of the documentation in a Jupyter kernel.

    .venv/bin/python -m tests.api.notebook    # writes the outputs that the documentation shows

Needs nbclient and ipykernel (`vernier[dev]`).
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import REPO

NOTEBOOK = REPO / "docs" / "notebooks" / "quickstart.ipynb"
PARAMETERS = "parameters"
"""The tag of the cell whose values a test replaces, as papermill does."""
TIMEOUT_S = 1500


def execute(folder: Path, parameters: str | None = None) -> Any:
    """The notebook with fresh outputs, run in `folder`; `parameters` replace the code of the cell of that tag.

    Raises nbclient's CellExecutionError for a cell that fails.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    for cell in notebook.cells:
        if parameters is not None and PARAMETERS in cell.metadata.get("tags", ()):
            cell.source = parameters
    # Outputs of a cell are numbered, and the times of its messages are recorded: neither belongs into the repository.
    client = NotebookClient(notebook, timeout=TIMEOUT_S, record_timing=False, resources={"metadata": {"path": folder}})
    asyncio.run(client.async_execute())
    return notebook


def main() -> None:
    import nbformat

    os.environ.pop("OMP_NUM_THREADS", None)
    with tempfile.TemporaryDirectory() as folder:
        notebook = execute(Path(folder))
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, NOTEBOOK)
    sys.stderr.write(f"{NOTEBOOK}: {NOTEBOOK.stat().st_size / 1000:,.0f} kB\n")


if __name__ == "__main__":
    main()
