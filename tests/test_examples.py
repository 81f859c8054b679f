"""The examples run as their first lines show, and stay short enough to be read."""

import csv
import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import vernier as v
from tests.conftest import REPO, Done

EXAMPLES = REPO / "examples"
FEW = ("--max-steps", "2", "--procs", "1", "--workers", "0", "--set", "machine.threads=1", "--epochs", "1")
pytestmark = pytest.mark.slow
needs_own_code = pytest.mark.skipif(
    "loss" not in signature(v.train).parameters, reason="this version takes no data sets and losses of users"
)


@pytest.fixture
def trained(vernier: Any, tmp_path: Path, shapes: Path) -> Any:
    """Two steps of `vernier train` with options of an example."""
    shutil.copytree(EXAMPLES, tmp_path / "examples")

    def train(*words: str, **env: str) -> Done:
        data = () if "--data" in words else ("--data", str(shapes))
        done: Done = vernier("train", *words, *data, *FEW, "--json", env=env)
        assert done.code == 0, done.err
        return done

    return train


@pytest.mark.parametrize("file", sorted(EXAMPLES.iterdir()), ids=lambda file: file.name)
def test_an_example_has_less_than_60_lines(file: Path) -> None:
    if file.suffix == ".ipynb":
        cells = json.loads(file.read_text())["cells"]
        assert sum(len(cell["source"]) for cell in cells) < 60
    else:
        assert len(file.read_text().splitlines()) < 60


def test_an_own_model_with_layer_wise_rates(trained: Any) -> None:
    name = "examples/own_model.py:ConvNeXt(width=24)"
    done = trained("--model", name, "--set", "optim.layer_decay=0.8", "--set", "machine.activation_checkpointing=true")
    assert done.json()["status"] == "finished"


@needs_own_code
def test_a_table_of_images_with_class_weights(trained: Any, shapes: Path, tmp_path: Path) -> None:
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "label"])
        table.writerows([path, path.parent.name] for path in sorted((shapes / "train").rglob("*.jpg")))
    trained(
        "--data", "examples/own_data.py:Table('labels.csv')", "--loss", "examples/own_data.py:weighted('labels.csv')"
    )


@needs_own_code
def test_a_loss_and_a_metric(trained: Any) -> None:
    loss, metric = "examples/own_loss.py:focal(gamma=1.5)", "examples/own_loss.py:balanced"
    done = trained("--loss", loss, "--metric", metric, "--set", "eval.best=balanced")
    assert 0 <= done.json()["result"]["balanced"] <= 1


@needs_own_code
def test_a_message_at_the_end(trained: Any) -> None:
    messages = list[str]()

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
            self.send_response(200)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Chat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/"
        trained("--observer", "examples/send_message.py:SendMessage", MESSAGES_TO=address)
    finally:
        server.shutdown()
        server.server_close()
    assert [text.partition(",")[0] for text in messages] == ["finished at step 2"]


@needs_own_code
def test_the_notebook_runs_in_a_kernel(tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    first.source = first.source.replace("STEPS = 60", "STEPS = 2")
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    assert list(tmp_path.glob("runs/*/run.json"))
