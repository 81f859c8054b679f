"""The batch script as text; tests/integration/test_schedulers.py has Slurm run it."""

from pathlib import Path

import pytest

from tests.lab.planning.submission.test_job import GOOD, documented, submission
from vernier.errors import ConfigError
from vernier.lab.planning.submission.slurm import slurm_script


def test_hosts_devices_and_time(tmp_path: Path) -> None:
    lines = slurm_script(submission(tmp_path, documented())).splitlines()
    assert "#SBATCH --nodes=4 --ntasks-per-node=8 --cpus-per-task=12" in lines
    assert "#SBATCH --gpus-per-node=8" in lines
    assert "#SBATCH --time=12:00:00" in lines
    assert "#SBATCH --partition=gpu" in lines
    (training,) = [line for line in lines if line.startswith("srun")]
    assert training.startswith("srun --kill-on-bad-exit=0 --cpus-per-task=12 vernier train")
    assert training.endswith("--max-time auto")
    options, shell = (lines.index(line) for line in ("#SBATCH --partition=gpu", "export NCCL_SOCKET_IFNAME=ib0"))
    assert options < shell, "Slurm reads no options after the first command"


def test_only_what_was_asked_for(tmp_path: Path) -> None:
    text = slurm_script(submission(tmp_path, GOOD))
    assert not any(word in text for word in ("--time", "--max-time", "--gpus", "--cpus-per-task", "--mem", "END_TIME"))
    assert "export MASTER_PORT=4000\n" in slurm_script(submission(tmp_path, GOOD + "port = 4000\n"))


def test_a_device_that_no_cluster_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Slurm does not run on macOS"):
        slurm_script(submission(tmp_path, GOOD.replace("cpu", "mps")))
