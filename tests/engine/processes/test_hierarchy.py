"""Sums within hosts first: the same as flat ones to rounding, in every process; and what is refused."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from tests.engine.processes import hierarchy_workers
from vernier.config import Config, Machine
from vernier.config.checks import check_config
from vernier.devices.cpu import Cpu
from vernier.engine.processes.gradients import build_exchange
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.errors import ConfigError

TOLERANCES = {"none": 1e-6, "bf16": 1e-2}
"""Largest difference from the flat sum, as a share of the gradients' norm: fp32 is rounded at 6e-8, bf16 at 4e-3."""


@pytest.mark.slow
def test_sums_within_hosts_first_are_the_flat_ones_to_rounding() -> None:
    done = subprocess.run(
        [sys.executable, hierarchy_workers.__file__],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).resolve().parents[3],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = json.loads(done.stdout)
    for compression, tolerance in TOLERANCES.items():
        assert 0 < answers[compression]["difference"] < tolerance, answers
        assert len(set(answers[compression]["sums"])) == 1, "processes disagree"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reduction": "exact"}, "does not work with machine.reduction = exact"),
        ({"gradient_compression": "powersgd"}, "does not work with machine.gradient_compression = powersgd"),
    ],
)
def test_what_has_sums_of_its_own_is_refused(settings: dict[str, str], message: str) -> None:
    machine = Machine(all_reduce="hierarchical", procs=2, **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=message):
        check_config(replace(Config(), machine=machine), detector=False)


class Nccl(Cpu):
    backend = "nccl"


def test_sums_within_hosts_without_effect_are_refused() -> None:
    net, machine = nn.Linear(2, 1), Machine(all_reduce="hierarchical")
    with pytest.raises(ConfigError, match="no effect on one process"):
        build_exchange(net, World(Topology()), machine, Cpu())
    with pytest.raises(ConfigError, match="is for CPUs"):
        build_exchange(net, World(Topology(world=4, launcher="torchrun")), machine, Nccl())
