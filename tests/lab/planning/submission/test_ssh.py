"""The script for ssh as text; tests/integration/test_schedulers.py runs it."""

import subprocess
from pathlib import Path

import pytest

from tests.lab.planning.submission.test_job import GOOD, documented, submission
from vernier.errors import ConfigError
from vernier.lab.planning.submission.ssh import ssh_script


def test_hosts_and_rendezvous(tmp_path: Path) -> None:
    text = ssh_script(submission(tmp_path, documented().replace("hosts = 4", "host_names = ['me@node1', 'node2']")))
    assert "hosts=(me@node1 node2)\n" in text
    assert '--nnodes=2 --nproc-per-node=8 --node-rank="$rank" --master-addr=node1 --master-port=29500' in text
    assert "--max-time 12h\nEND\n" in text
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_hosts_need_names(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="set host_names in"):
        ssh_script(submission(tmp_path, GOOD + "hosts = 2\n"))
