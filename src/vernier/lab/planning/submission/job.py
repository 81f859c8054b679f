"""A training on several hosts as it will be submitted: the machine file, its checks, and the training's command.

A machine file is TOML with two tables: `[machine]`, the settings of that name, and `[job]`, which says how many hosts
there are, what they share and for how long. The forms that a job is written in are the neighbours of this file.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path, PurePosixPath

from vernier.addresses import refuse_credentials
from vernier.config import (
    Config,
    MachineFile,
    assignment,
    check_config,
    derive,
    from_dict,
    override,
    override_from_text,
    read_machine_file,
)
from vernier.config.settings import option
from vernier.errors import ConfigError, did_you_mean
from vernier.frozen import frozen
from vernier.models import is_detector
from vernier.quantities import parse_duration
from vernier.wording import plural

SAVE_S = 120
"""A scheduler that ends a job warns it this long before, so that it can save."""
_SHORTEST_S = 600
_LAUNCHER = ("python", "-P", "-m", "vernier.engine.processes.torchrun")
"""torchrun with the exit codes of its processes."""
_FORMS = {
    # In a script a variable is one line.
    "environment": (r"[A-Za-z_][A-Za-z0-9_]*=[^\n\0]*", "write NAME=VALUE, e.g. NCCL_SOCKET_IFNAME=ib0"),
    # No hyphen first: ssh would take such a name for an option.
    "host_names": (
        r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_][A-Za-z0-9_.:-]*",
        "it is not the name or address of a host",
    ),
    "slurm_options": (r"--[a-z][^\n\0]*", "write options of sbatch such as --partition=gpu"),
    "claims": (r"[^:\s]+:/[^\n\0]*", "write CLAIM:/FOLDER, e.g. shared-runs:/runs"),
}
"""How the texts of a list are written, and what to say about others."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_LONGEST_NAME = 40
"""Kubernetes makes names of pods from it, which may have 63 characters."""


@frozen
class Job:
    """The table `[job]` of a machine file."""

    name: str = option("", "lower-case letters, digits and hyphens; left out: from the recipe's name")
    hosts: int | None = option(None, "number of hosts; left out: as many as host_names, or 1", low=1, high=10_000)
    processes_per_host: int = option(1, "one per device", low=1, high=1024)
    cpus_per_process: int | None = option(None, "cores; left out: the scheduler's default", low=1, high=4096)
    memory_gb_per_host: int | None = option(None, "in GB; left out: the scheduler's default", low=1)
    time_limit: str | None = option(None, "e.g. 12h; the training saves before and goes on in the next job")
    out: str = option("", "folder of runs, which all hosts must share")
    data: str = option("", "data set on the hosts; default: the recipe's")
    setup: tuple[str, ...] = option((), "Slurm, ssh: lines of shell before the training, on every host")
    environment: tuple[str, ...] = option((), "variables for the training, as NAME=VALUE")
    port: int | None = option(
        None, "of the rendezvous on the first host; left out: from the job's number, or 29500", low=1024, high=65535
    )
    slurm_options: tuple[str, ...] = option((), "Slurm: more options of sbatch, e.g. --partition=gpu")
    host_names: tuple[str, ...] = option((), "ssh: the hosts, the first one is the rendezvous")
    image: str = option("", "Kubernetes: container image with Vernier")
    namespace: str = option("", "Kubernetes: namespace; left out: that of kubectl")
    claims: tuple[str, ...] = option((), "Kubernetes: volumes, as CLAIM:/FOLDER")
    max_restarts: int = option(3, "Kubernetes: how often a failed training is started again", low=0, high=1000)

    @property
    def host_count(self) -> int:
        return self.hosts or len(self.host_names) or 1

    @property
    def processes(self) -> int:
        return self.host_count * self.processes_per_host


@frozen
class Submission:
    """A checked job: its name, its settings, and the words of its training command."""

    name: str
    job: Job
    device: str
    training: tuple[str, ...]
    """`vernier train ...` without --max-time, whose value depends on the scheduler."""
    recipe_file: Path | None = None
    """A recipe that is a file, and not one of Vernier's."""

    def describe(self) -> str:
        """What is submitted, in one line."""
        count = self.job.host_count
        return f"{self.name}: {plural(count, 'host')} x {plural(self.job.processes_per_host, 'process')}"

    def torchrun(self, address: str, node_rank: str) -> tuple[str, ...]:
        """The command of one host: all of its processes, each with the training."""
        # These launchers do not say when a job ends, as Slurm does.
        limit = ("--max-time", self.job.time_limit) if self.job.time_limit else ()
        return (
            *_LAUNCHER,
            f"--nnodes={self.job.host_count}",
            f"--nproc-per-node={self.job.processes_per_host}",
            f"--node-rank={node_rank}",
            f"--master-addr={address}",
            f"--master-port={self.job.port or 29500}",
            "--no-python",
            *self.training,
            *limit,
        )


def _read_job(file: MachineFile) -> Job:
    """The job of a machine file. Raises ConfigError."""
    names = [f.name for f in fields(Job)]
    if unknown := next((name for name in file.job if name not in names), None):
        raise ConfigError(f"{file.path}: there is no setting job.{unknown}. {did_you_mean(unknown, names)}")
    try:
        return from_dict(Job, dict(file.job), "job")
    except ConfigError as error:
        raise error.within(file.path) from None


def plan_submission(
    recipe: str, config: Config, machine_file: Path, settings: Sequence[str] = (), *, recipe_file: Path | None = None
) -> Submission:
    """A checked submission of a recipe. `settings` are texts NAME=VALUE. Raises ConfigError for what cannot run."""
    file = read_machine_file(machine_file)
    machine, job = file.settings, _read_job(file)
    try:
        for name, value in machine.items():
            config = override(config, f"machine.{name}", value)
        _check_job(job)
    except ConfigError as error:
        raise error.within(machine_file) from None
    if "procs" in machine:
        raise ConfigError(f"{machine_file}: machine.procs follows from hosts and processes_per_host. Leave it out.")
    config = override_from_text(config, *settings)
    config = override(config, "machine.procs", job.processes)
    if job.data:
        config = override(config, "data.source", job.data)
    _check_config(config, machine_file)
    # The device is an option of the command, below.
    assignments = [assignment(f"machine.{name}", value) for name, value in machine.items() if name != "device"]
    words = ["vernier", "train", str(recipe_file or recipe), *(("--data", job.data) if job.data else ())]
    words += ["--out", job.out, "--device", config.machine.device, "--procs", str(job.processes)]
    words += [word for text in (*assignments, *settings) for word in ("--set", text)]
    return Submission(
        name=job.name or _name_from(config.recipe.name),
        job=job,
        device=config.machine.device,
        training=tuple(words),
        recipe_file=recipe_file,
    )


def shell_lines(job: Job) -> list[str]:
    """The set-up of a job and its variables, as lines of shell."""
    return [*job.setup, *(f"export {name}={shlex.quote(value)}" for name, value in variables_of(job))]


def variables_of(job: Job) -> Iterator[tuple[str, str]]:
    """Names and values of its variables."""
    return ((name, value) for name, _, value in (text.partition("=") for text in job.environment))


def _name_from(text: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return name or "vernier"


def _check_config(config: Config, machine_file: Path) -> None:
    """Refuse a training that would be refused on the hosts, as far as that can be told here."""
    if config.machine.device == "auto":
        raise ConfigError(
            f"{machine_file}: the script must say which devices it needs. Set device in [machine], e.g. "
            'device = "cuda" or device = "cpu".'
        )
    check_config(config, detector=is_detector(config.recipe.model.name))
    # The data is on the hosts and cannot be counted here; one batch is the least that any set has.
    derive(config, train_samples=max(config.recipe.global_batch, config.recipe.data.epoch_images or 1))


def _check_job(job: Job) -> None:
    """Raises ConfigError for settings of `[job]` that contradict each other, or that a shell would misread."""
    if not job.out:
        raise ConfigError('Set out in [job] to a folder that all hosts share, e.g. out = "/shared/runs".')
    if not PurePosixPath(job.out).is_absolute():
        raise ConfigError(f"job.out = {job.out!r} must begin with /: the hosts have other working directories.")
    if job.host_names and job.hosts not in (None, len(job.host_names)):
        raise ConfigError(f"job.hosts = {job.hosts}, but host_names has {len(job.host_names)}. Leave hosts out.")
    if job.name and (not _NAME.fullmatch(job.name) or len(job.name) > _LONGEST_NAME):
        raise ConfigError(
            f"job.name = {job.name!r}: use up to {_LONGEST_NAME} lower-case letters, digits and hyphens between them."
        )
    if job.time_limit is not None and parse_duration(job.time_limit) < _SHORTEST_S:
        raise ConfigError(f"job.time_limit = {job.time_limit!r} is too short: give 10m or more, so that it can save.")
    refuse_credentials(job.data, "job.data")
    for name, (form, advice) in _FORMS.items():
        if wrong := next((text for text in getattr(job, name) if not re.fullmatch(form, text)), None):
            raise ConfigError(f"job.{name} has {wrong!r}: {advice}.")
    if len(set(job.host_names)) < len(job.host_names):
        raise ConfigError("job.host_names has a host twice. Use processes_per_host for several processes on a host.")
