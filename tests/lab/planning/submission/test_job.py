"""Machine files: what becomes of a good one, and what is said about a wrong one."""

from pathlib import Path

import pytest

from tests.documented import DOCS, fences
from vernier import recipes
from vernier.errors import ConfigError
from vernier.lab.planning.submission.job import Submission, plan_submission, shell_lines

GOOD = '[machine]\ndevice = "cpu"\n[job]\nout = "/shared/runs"\n'


def submission(tmp_path: Path, text: str, *settings: str, recipe: str = "nvidia-resnet50-90e") -> Submission:
    """A built-in recipe on the machine of this text."""
    (tmp_path / "machine.toml").write_text(text)
    return plan_submission(recipe, recipes.load(recipe), tmp_path / "machine.toml", settings)


def documented() -> str:
    """The machine file of the page."""
    (text,) = [fence.text for fence in fences(DOCS / "many-machines.md") if "[job]" in fence.text]
    return text


def test_the_machine_file_of_the_documentation(tmp_path: Path) -> None:
    made = submission(tmp_path, documented())
    assert (made.job.host_count, made.job.processes, made.device) == (4, 32, "cuda")
    assert made.describe() == "nvidia-resnet50-90e: 4 hosts x 8 processes"
    assert " ".join(made.training) == (
        "vernier train nvidia-resnet50-90e --data /data/imagenet --out /shared/runs --device cuda --procs 32 "
        '--set machine.precision="bf16" --set machine.workers=8'
    )


def test_settings_follow_the_machine_file(tmp_path: Path) -> None:
    made = submission(tmp_path, GOOD, "schedule.epochs=18", "machine.device=cuda")
    assert made.device == "cuda"
    assert made.training[-4:] == ("--set", "schedule.epochs=18", "--set", "machine.device=cuda")


def test_variables_and_setup_become_lines_of_shell(tmp_path: Path) -> None:
    text = GOOD + "setup = ['module load cuda']\nenvironment = ['A=two words', 'B=$HOME']\n"
    assert shell_lines(submission(tmp_path, text).job) == [
        "module load cuda",
        "export A='two words'",
        "export B='$HOME'",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Set out in .job. to a folder that all hosts share"),
        ('[job]\nout = "/runs"\n', 'Set device in .machine., e.g. device = "cuda"'),
        ('[job]\nout = "runs"\n', "job.out = 'runs' must begin with /"),
        (GOOD + "host = 3\n", "no setting job.host. Did you mean hosts"),
        (GOOD + "hosts = 0\n", "job.hosts = 0 is out of range"),
        (GOOD + "hosts = 3\n", "global_batch = 2048"),
        (GOOD + "hosts = 2\nhost_names = ['a']\n", "hosts = 2, but host_names has 1"),
        (GOOD + "host_names = ['-oProxyCommand=x']\n", "is not the name or address of a host"),
        (GOOD + "host_names = ['a', 'a']\n", "has a host twice"),
        (GOOD + "name = 'My Job'\n", "lower-case letters"),
        (GOOD + "time_limit = '1m'\n", "too short"),
        (GOOD + "time_limit = 'long'\n", "is not a duration"),
        (GOOD + "environment = ['a b']\n", "write NAME=VALUE"),
        (GOOD + "slurm_options = ['-p gpu']\n", "write options of sbatch"),
        (GOOD + "data = 'https://me:secret@example.org/x'\n", "has a password or token in it"),
        (GOOD.replace("[job]", "procs = 4\n[job]"), "machine.procs follows from hosts"),
        (GOOD.replace("[job]", "precisoin = 'bf16'\n[job]"), "Unknown setting 'machine.precisoin'"),
        ("[machines]\n", "A machine file has the tables"),
        ("job = 3\n", "must be tables"),
        ("[job\n", "is not valid TOML"),
    ],
)
def test_wrong_machine_files_are_named_with_what_would_work(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        submission(tmp_path, text)
    assert "secret@" not in str(error.value)
