"""Gaudi, against the interface of Habana's package (`habana_stubs`) and a program `hl-smi`."""

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.devices.vendor_specs import hl_smi, tensor_spec
from tests.lab.telemetry.gaudi_host import path_with, put_hl_smi, uuid_of
from vernier.compat.devices.hpu import Hpu, lazy
from vernier.config import Machine
from vernier.engine.execution import Execution, borrowed, evaluating
from vernier.engine.processes.launch import topology

HOST = """2, 01P0-HL2080A0-15-TN-A, HL-225, 98304 MiB
6, 01P0-HL2080A0-15-TN-B, HL-225, 98304 MiB
0, 01P0-HL2080A0-15-TN-C, HL-225, N/A
"""
"""hl-smi's own order is that of the driver's index, which is not that of the module ids."""


def test_a_process_has_one_device_whatever_its_rank(hpu: Any) -> None:
    assert {Hpu().torch_device(rank) for rank in range(8)} == {torch.device("hpu")}


def test_gaudis_are_known_by_their_module_ids(hpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hl_smi(tmp_path, monkeypatch, HOST)
    assert [(d.index, d.uuid) for d in Hpu().identity()] == [
        (0, "01P0-HL2080A0-15-TN-C"),
        (1, "01P0-HL2080A0-15-TN-A"),
        (2, "01P0-HL2080A0-15-TN-B"),
    ]
    assert Hpu().identity()[0].memory_bytes is None
    assert Hpu().identity()[1].memory_bytes == 96 << 30
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "6,2")
    assert [d.uuid for d in Hpu().identity()] == ["01P0-HL2080A0-15-TN-B", "01P0-HL2080A0-15-TN-A"]
    second = Hpu().environment_for(Hpu().identity()[1])
    assert second == {"HABANA_VISIBLE_MODULES": "2", "HLS_MODULE_ID": "2"}
    assert hpu.calls == []  # a Gaudi belongs to one process: asking must not acquire it


@pytest.mark.parametrize("rows", ["", "no such option\n", "x, y, z, w\n"])
def test_without_a_useful_hl_smi_gaudis_have_no_uuid(
    hpu: Any, rows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hl_smi(tmp_path, monkeypatch, rows)
    assert [(d.name, d.uuid) for d in Hpu().identity()] == [("Intel Gaudi", None)] * 8


def test_one_of_several_processes_acquires_the_module_of_its_local_rank(
    hpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hl_smi(tmp_path, monkeypatch, HOST)
    assert Hpu().own_device(1).uuid is None  # a process on its own gets any module that is free
    Hpu().prepare_collectives(rank=5, local_rank=1, world=8)
    Hpu().prepare("bf16", local_rank=1)
    assert hpu.calls == ["acquire module 2"]
    assert Hpu().own_device(1).uuid == "01P0-HL2080A0-15-TN-A"


def test_a_module_that_the_user_chose_is_used(hpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLS_MODULE_ID", "5")
    Hpu().prepare_collectives(rank=0, local_rank=0, world=2)
    Hpu().prepare()
    assert hpu.calls == ["acquire module 5"]


SRUN = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[1-2]",
}
MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "MASTER_ADDR": "node1",
}


@pytest.mark.parametrize("launcher", [SRUN, MPIRUN])
def test_hccl_is_registered_and_told_of_the_process_while_the_launcher_stays_known(
    hpu: Any, launcher: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Habana's package sets RANK, WORLD_SIZE and MASTER_ADDR; they would make this a process of torchrun's."""
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in sys.modules if name.startswith("habana_frameworks")]:
        del sys.modules[name]
    before = topology()
    assert (before.rank, before.local_rank, before.world) == (5, 1, 8)
    Hpu().prepare_collectives(rank=before.rank, local_rank=before.local_rank, world=before.world)
    assert importlib.import_module("habana_frameworks.torch.distributed.hccl").registered == ["hccl"]
    assert topology() == before
    assert os.environ["HLS_MODULE_ID"] == "1"


def test_lazy_mode_is_as_the_variable_or_else_habanas_package_says(monkeypatch: pytest.MonkeyPatch, hpu: Any) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    assert not lazy()
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    assert lazy()
    assert Hpu().answer("bf16", "compile").verdict == "refused"
    monkeypatch.delenv("PT_HPU_LAZY_MODE")
    assert lazy() == importlib.import_module("habana_frameworks.torch.core").is_lazy()


def test_steps_are_marked_in_lazy_mode_only(hpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = importlib.import_module("habana_frameworks.torch.core").marks
    Hpu().end_step()
    assert len(marks) == 0
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    Hpu().end_step()
    assert len(marks) == 1


def test_batches_are_copied_from_page_locked_memory_without_waiting(hpu: Any) -> None:
    tensor, target = tensor_spec(), torch.device("hpu")
    device = Hpu()
    assert device.upload(device.pinned(tensor), target) is tensor
    tensor.pin_memory.assert_called_once_with("hpu")
    tensor.to.assert_called_once_with(target, non_blocking=True)
    device.copied_event()
    assert "synchronize" not in hpu.calls


def test_graphs_are_counted_by_habanas_metrics_and_settings_are_those_of_intels_scripts(hpu: Any) -> None:
    compiled = Hpu().compilations()
    assert (compiled.graphs, compiled.seconds) == (3, 1.5)
    assert os.environ["PT_HPU_EAGER_ENABLE_GRADIENT_VIEW_LAYOUT_OPT"] == "1"
    assert (Hpu.channels_last, Hpu.bucket_mb) == (False, 256)


def _network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))


class HpuOnTheHost(Hpu):
    """A Gaudi whose tensors are the host's: its autocast and memory are left out."""

    def autocast(self, precision: str) -> Any:
        return super().autocast("fp32")


def test_a_training_network_never_gets_a_graph(hpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights change, and averaged ones are lent to it."""
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    model, images = _network(), torch.ones(4, 2)
    execution = Execution(model, Machine(channels_last=False), HpuOnTheHost())
    with evaluating(model, HpuOnTheHost()):
        before = execution.evaluation_network(4)(images)
        averaged = {name: torch.zeros_like(tensor) for name, tensor in model.state_dict().items()}
        with borrowed(model, averaged):
            assert not execution.evaluation_network(4)(images).any()
        assert torch.equal(execution.evaluation_network(4)(images), before)
    assert "forward" not in vars(model)  # Habana's wrapper would have put one there
    execution.training_network(images)(images).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_frozen_network_replays_a_graph_of_its_own(hpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    model = _network()
    model[1].eval()  # type: ignore[index]
    execution = Execution(model, Machine(channels_last=False), HpuOnTheHost(), frozen=True)
    forward = execution.evaluation_network(4)
    assert execution.evaluation_network(4) is not forward
    assert [m.training for m in model.modules()] == [True, True, False]  # each keeps its own mode
    with evaluating(model, HpuOnTheHost()):
        first, second = forward(torch.ones(4, 2)), forward(torch.zeros(4, 2))
        assert torch.equal(first, model(torch.ones(4, 2)))  # not overwritten by the second
        assert torch.allclose(second, model(torch.zeros(4, 2)))
        assert torch.allclose(forward(torch.ones(3, 2)), first[:3])
    assert "forward" not in vars(model)
    with torch.no_grad():
        model[0].weight.data = torch.zeros(3, 2)  # type: ignore[index]
    with evaluating(model, HpuOnTheHost()):
        assert torch.equal(execution.evaluation_network(4)(torch.ones(4, 2)), first)  # recorded, as on the device


class GaudiHost(Hpu):
    """The devices of a host whose hl-smi is real; `VISIBLE` of them can be seen."""

    VISIBLE = 8

    @classmethod
    def library(cls) -> Any:
        return SimpleNamespace(device_count=lambda: cls.VISIBLE, get_device_name=lambda index: "GAUDI2")


class HalfOfGaudiHost(GaudiHost):
    VISIBLE = 4


@pytest.fixture
def gaudi_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", path_with(tmp_path))
    for variable in ("HABANA_VISIBLE_MODULES", "HLS_MODULE_ID"):
        monkeypatch.delenv(variable, raising=False)
    return put_hl_smi(tmp_path)


def test_gaudi_modules_are_numbered_by_module_id_and_not_by_the_order_of_hl_smi(gaudi_host: Path) -> None:
    assert [d.uuid for d in GaudiHost().identity()] == [uuid_of(module) for module in range(8)]


def test_a_process_on_some_gaudi_modules_limits_its_children_by_module_id(
    gaudi_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "5,4,7,6")
    visible = HalfOfGaudiHost().identity()
    assert [d.uuid for d in visible] == [uuid_of(module) for module in (5, 4, 7, 6)]
    variables = HalfOfGaudiHost().environment_for(visible[2])
    assert variables == {"HABANA_VISIBLE_MODULES": "7", "HLS_MODULE_ID": "7"}
    gaudi_host.unlink()  # without it, by the place in the list
    assert HalfOfGaudiHost().environment_for(visible[3])["HABANA_VISIBLE_MODULES"] == "6"


def test_a_gaudi_process_knows_its_module_only_where_one_was_chosen(
    gaudi_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the driver gives it any module that is free."""
    assert GaudiHost().own_device(0).uuid is None
    monkeypatch.setenv("HLS_MODULE_ID", "6")
    assert GaudiHost().own_device(0).uuid == uuid_of(6)
    monkeypatch.setenv("HLS_MODULE_ID", "9")
    assert GaudiHost().own_device(0).uuid is None


def test_an_hl_smi_that_fails_or_hangs_gives_no_uuids(gaudi_host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_hl_smi(gaudi_host.parent, "exit 1")
    assert {d.uuid for d in GaudiHost().identity()} == {None}
    put_hl_smi(gaudi_host.parent, "exec sleep 60")
    monkeypatch.setattr("vernier.compat.devices.hpu.HL_SMI_TIMEOUT_S", 0.2)
    assert {d.uuid for d in GaudiHost().identity()} == {None}
