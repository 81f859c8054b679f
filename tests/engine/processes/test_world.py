"""One, two and three processes learn the same: order, losses, weights, evaluations, resuming with more processes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.engine.processes import workers
from tests.engine.processes.running import Start, start_by_hand
from vernier.compat.devices.mps import Mps
from vernier.config import Machine
from vernier.devices.cpu import Cpu
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import Stragglers, World, join_processes
from vernier.errors import ConfigError, RunFailed
from vernier.records.codec import encode

REPO = Path(__file__).resolve().parents[3]


def _launch(procs: int, plan: dict[str, Any], folder: Path) -> dict[str, Any]:
    folder.mkdir()
    plan = {**plan, "out": str(folder / "runs"), "answer": str(folder / "answer.json")}
    (folder / "plan.json").write_text(json.dumps(plan))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={procs}"]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{REPO}"}
    done = subprocess.run(
        [*launcher, str(REPO / "tests/engine/processes/workers.py"), str(folder / "plan.json")],
        capture_output=True,
        text=True,
        timeout=300,
        env=environ,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return answer


@pytest.fixture(scope="module")
def answers(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """What one process finds (here), then two, which hand a half-done run to three."""
    folder = tmp_path_factory.mktemp("processes")
    plan: dict[str, Any] = {"shapes": str(shapes), "out": str(folder / "one"), "trained": None, "resume": None}
    alone = World(Topology())
    one = workers.everything(plan, alone)
    trained = next((folder / "one" / "sync").iterdir())
    one["evaluated"] = encode(workers.evaluate_trained(workers.load_trained(trained)))
    plan["trained"] = str(trained)
    two = _launch(2, plan, folder / "two")
    three = _launch(3, {**plan, "resume": two["half"]}, folder / "three")
    return {1: one, 2: two, 3: three}


@pytest.mark.slow
@pytest.mark.parametrize("procs", [2, 3])
def test_the_order_of_samples_is_the_same(answers: dict[int, dict[str, Any]], procs: int) -> None:
    assert answers[procs]["order"] == answers[1]["order"]


@pytest.mark.slow
@pytest.mark.parametrize("curve", ["in sync", "groups", "plain", "correct"])
@pytest.mark.parametrize("procs", [2, 3])
def test_losses_agree_to_float_tolerance(answers: dict[int, dict[str, Any]], procs: int, curve: str) -> None:
    """Batch norm over all processes, over groups of four images, and without it; there training accuracy too."""
    assert len(answers[1][curve]) >= 6
    assert answers[procs][curve] == pytest.approx(answers[1][curve], rel=1e-3)  # rounding grows from step to step


@pytest.mark.slow
@pytest.mark.parametrize("procs", [1, 2, 3])
def test_activation_checkpointing_changes_nothing(answers: dict[int, dict[str, Any]], procs: int) -> None:
    """With DistributedDataParallel, and batch norm over all processes, which combine their statistics again."""
    assert answers[procs]["recomputed"] == answers[procs]["in sync"][:3]


@pytest.mark.slow
def test_groups_are_not_the_same_as_all_in_sync(answers: dict[int, dict[str, Any]]) -> None:
    assert answers[1]["groups"] != pytest.approx(answers[1]["in sync"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("procs", [2, 3])
def test_evaluation_is_the_same_to_the_last_digit(answers: dict[int, dict[str, Any]], procs: int) -> None:
    names = ("top1", "top5", "loss", "samples")
    assert [answers[procs]["evaluated"][f] for f in names] == [answers[1]["evaluated"][f] for f in names]
    assert answers[procs]["evaluated"]["procs"] == procs


def _weights(run: str) -> dict[str, Any]:
    newest = max((Path(run) / "checkpoints").glob("step-*"))
    return dict(load_file(newest / "model.safetensors"))


@pytest.mark.slow
@pytest.mark.parametrize("procs", [2, 3])
def test_accumulation_times_processes_gives_the_same_weights(answers: dict[int, dict[str, Any]], procs: int) -> None:
    """SGD without batch norm: 1 x 6, 2 x 3 and 3 x 2 make the same global batch."""
    one, several = _weights(answers[1]["plain run"]), _weights(answers[procs]["plain run"])
    assert one.keys() == several.keys()
    assert max(float((one[k] - several[k]).abs().max()) for k in one) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("procs", [2, 3])
def test_averaging_in_host_memory_gives_the_same_weights_as_buckets(
    answers: dict[int, dict[str, Any]], procs: int
) -> None:
    """Two numbers add up to the same in any order, three nearly."""
    buckets, host = _weights(answers[procs]["plain run"]), _weights(answers[procs]["host run"])
    assert max(float((buckets[k] - host[k]).abs().max()) for k in buckets) <= (0 if procs == 2 else 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("procs", [2, 3])
def test_gradients_sent_in_buckets_are_the_mean_and_the_same_everywhere(
    answers: dict[int, dict[str, Any]], procs: int
) -> None:
    sent = answers[procs]["in buckets"]
    assert sent["buckets"] > 1
    assert max(sent["errors"]) < 1e-6
    assert len(set(sent["sums"])) == 1


@pytest.mark.slow
@pytest.mark.parametrize("procs", [1, 2, 3])
def test_all_processes_go_back_together_when_one_diverges(answers: dict[int, dict[str, Any]], procs: int) -> None:
    result = answers[procs]["rolled back"]
    assert list(result["ranks"]) == [procs - 1]
    assert result["agreed"] == [[4, 2]] * procs
    assert result["steps"] == [1, 2, 3, 4, 5]
    (samples,) = result["samples"]
    assert len(set(samples)) == 24 // procs


@pytest.mark.slow
def test_three_processes_resume_what_two_began(answers: dict[int, dict[str, Any]]) -> None:
    resumed, whole = _weights(answers[3]["resumed"]), _weights(answers[1]["plain run"])
    assert max(float((resumed[k] - whole[k]).abs().max()) for k in whole) < 1e-6
    assert answers[3]["resumed"] == answers[2]["half"]


@pytest.mark.slow
def test_every_process_writes_its_own_events(answers: dict[int, dict[str, Any]]) -> None:
    run = Path(answers[3]["plain run"])
    assert sorted(p.name for p in run.glob("events*")) == ["events.jsonl", "events.rank1.jsonl", "events.rank2.jsonl"]
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    step = next(e for e in events if e["kind"] == "step")
    assert len(step["own_s_by_rank"]) == 3
    assert [p["rank"] for p in next(e for e in events if e["kind"] == "start")["processes"]] == [0, 1, 2]


def test_two_processes_on_the_one_device_of_a_host_are_refused() -> None:
    two = Topology(world=2, local_world=2)
    with (
        pytest.raises(ConfigError, match="2 processes on this host, which has 1 mps device") as error,
        join_processes(two, Mps(), Machine()),
    ):
        pass
    assert error.value.given == {"machine.procs": 2}
    assert error.value.works == [("machine.procs", 1), ("machine.device", "cpu")]


_ON_ONE_GPU = """
import os, sys
from vernier.config import Machine
from vernier.devices.cpu import Cpu
from vernier.engine.processes.launch import topology
from vernier.engine.processes.world import join_processes
from vernier.errors import ConfigError
from vernier.records.environment import DeviceInfo

class OneGpu(Cpu):
    shared = False
    def own_device(self, local_rank): return DeviceInfo(index=0, name="GPU", uuid=sys.argv[1].format(rank=local_rank))

try:
    with join_processes(topology(), OneGpu(), Machine()): message = "joined"
except ConfigError as error:
    message = str(error)
open(sys.argv[2] + os.environ["RANK"], "w").write(message)
"""


@pytest.mark.slow
def test_processes_that_see_one_gpu_each_join_unless_it_is_the_same_one(tmp_path: Path) -> None:
    script = tmp_path / "join.py"
    script.write_text(_ON_ONE_GPU)
    for uuid, message in (("GPU-7", " share the cpu device GPU-7, and each needs its own"), ("GPU-{rank}", "joined")):
        answer = tmp_path / f"{uuid}-"
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        subprocess.run([*launcher, str(script), uuid, str(answer)], capture_output=True, timeout=120, check=True)
        for rank in range(2):
            text = Path(f"{answer}{rank}").read_text()
            assert message in text


@pytest.mark.parametrize(("backend", "expected"), [("hccl", "hccl"), (None, "gloo")])
def test_the_backend_is_registered_before_the_group_that_uses_it(
    monkeypatch: pytest.MonkeyPatch, backend: str | None, expected: str
) -> None:
    """It was registered later, with the first tensor."""
    calls: list[str] = []

    class Registering(Cpu):
        def prepare_collectives(self, *, rank: int, local_rank: int, world: int, deterministic: bool) -> None:
            calls.append(f"registered {rank}, {local_rank} of {world}")

    def create_group(name: str, **_: Any) -> None:
        calls.append(name)
        raise RuntimeError("far enough")

    Registering.backend = backend
    monkeypatch.setattr("vernier.engine.processes.world.open_store", lambda *_, **__: None)
    monkeypatch.setattr("vernier.engine.processes.world.PrefixStore", lambda *_: None)
    monkeypatch.setattr("vernier.engine.processes.world.connect_hosts", lambda *_: None)
    monkeypatch.setattr("torch.distributed.init_process_group", create_group)
    own = Topology(rank=5, world=8, local_rank=1, local_world=4)
    with pytest.raises(RunFailed, match="far enough"), join_processes(own, Registering(), Machine()):
        pass
    assert calls == ["registered 5, 1 of 8", expected]


def test_a_straggler_is_reported_once_and_only_when_it_stays_slow() -> None:
    stragglers = Stragglers()
    for _ in range(4):
        assert stragglers.check([0.010, 0.020, 0.010]) is None
    assert stragglers.check([0.010, 0.010, 0.010]) is None
    warnings = [stragglers.check([0.010, 0.020, 0.010]) for _ in range(8)]
    assert [w is not None for w in warnings] == [False] * 4 + [True] + [False] * 3
    assert "rank 1 is slow: 2.0 times" in (warnings[4] or "")


@pytest.mark.slow
def test_data_missing_at_one_process_ends_all_with_its_message(shapes: Path, tmp_path: Path, start: Start) -> None:
    first, second = start_by_hand(start, tmp_path / "runs", [shapes, tmp_path / "absent"])
    code, output = first.wait()
    assert code == 1, output
    assert re.search(r"rank 1 of 2 on \S+ failed: The data path \S+ does not exist", output), output
    assert "Traceback" not in output
    assert second.wait()[0] == 2
    assert not (tmp_path / "runs").exists()
