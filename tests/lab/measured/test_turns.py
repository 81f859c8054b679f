"""A load that takes turns, in this process: it answers every file that asks for a turn."""

import threading
from pathlib import Path

import pytest

from tests.tiny_training import tiny_config
from vernier.config import to_dict
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.lab.measured import turns
from vernier.lab.measured.turns import run_turns
from vernier.records.bench import Ready, Turn, TurnsRequest
from vernier.store import read_record


class _Over(Exception):
    """No more turns."""


@pytest.mark.parametrize("work", ["train", "infer"])
def test_it_gets_ready_and_answers_turns(
    work: str, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = TurnsRequest(
        work=work,  # type: ignore[arg-type]
        config=to_dict(tiny_config(shapes)),
        folder=tmp_path,
        turn_s=0.01,
        warmup_max_seconds=0.1,
    )
    request.turn_file(0).touch()
    request.turn_file(1).touch()

    def wait(path: Path) -> None:
        if not path.exists():
            raise _Over

    monkeypatch.setattr(turns, "_wait_for", wait)
    with pytest.raises(_Over):
        run_turns(request, World(Topology()))
    ready = read_record(Ready, request.ready_file)
    assert ready.images_per_step == 16
    assert ready.steps_per_turn >= 1
    assert ready.ran is not None
    for number in (0, 1):
        assert read_record(Turn, request.answer_file(number)).images_per_s > 0
    assert not request.answer_file(2).exists()


def test_it_waits_until_it_is_its_turn(tmp_path: Path) -> None:
    timer = threading.Timer(0.05, (tmp_path / "turn-0").touch)
    timer.start()
    turns._wait_for(tmp_path / "turn-0")
    timer.join()
