"""Predictions for many devices and scripts for clusters: `vernier plan` and `submit`, and the functions of that name.

The model behind a prediction is in `lab.planning`, the scripts are in its package `submission`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vernier import recipes as book
from vernier.api.functions import function
from vernier.api.session import Session
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.planning.plan import NETWORKS, Network, Workload
from vernier.lab.planning.submission.job import Submission, plan_submission
from vernier.lab.planning.submission.scripts import kubernetes_manifest, slurm_script, ssh_script
from vernier.lab.planning.table import PlanRow, divide_batch, plan_rows, reading_notes
from vernier.lab.planning.workload import (
    CONVERSION_ERROR,
    Basis,
    hours_and_range,
    speed_of,
    summary_lines,
    workload_of,
)
from vernier.lab.records.links import LinkResult
from vernier.lab.requests.planning import Plan, Scheduler, Submit
from vernier.quantities import fraction
from vernier.references import command, given, use
from vernier.store import read_record

_MOST_DEVICES = 10**6
_NUMBER = r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"


@frozen
class ScalingPlan:
    """What a recipe would do on many devices.

    `rows` has one prediction per number of devices, `scaling` is strong or weak. `summary` are lines about what the
    plan is for and based on, `notes` how to read it.
    """

    basis: "Basis"
    network: "Network"
    workload: "Workload"
    scaling: str
    rows: tuple["PlanRow", ...]
    summary: tuple[str, ...]
    notes: tuple[str, ...]


def make_plan(request: Plan, session: Session) -> ScalingPlan:
    """Predict a recipe on many devices. Raises ConfigError."""
    counts, network = _counts(request.devices), _network(request)
    config = book.change(book.load(request.recipe), {}, request.settings).config
    recipe = config.recipe
    if request.batch is not None and not request.weak and not re.fullmatch(_NUMBER, request.bench):
        raise ConfigError(
            f"{given('batch', request.batch)}: the batch per device follows from the recipe's global batch of "
            f"{recipe.global_batch:,} and the number of devices. Omit it, or let the batch grow with "
            f"{use('weak', True)}."
        )
    # That of the fewest devices is the largest that the plan will have.
    given_batch = request.batch or max(1, recipe.global_batch // counts[0])
    work, basis = workload_of(config, request.bench, given_batch, network, convert=request.convert)
    work = replace(
        work,
        spread=work.spread if request.spread is None else fraction(request.spread),
        host_images_per_s=request.input_img_s,
        watts=request.watts,
    )
    each = request.batch or work.measured_batch
    batches = {count: count * each for count in counts} if request.weak else divide_batch(counts, recipe.global_batch)
    images = recipe.schedule.epochs * book.train_images(recipe)
    rows = tuple(plan_rows(work, batches, recipe.global_batch, network, images))
    return ScalingPlan(
        basis=basis,
        network=network,
        workload=work,
        scaling="weak" if request.weak else "strong",
        rows=rows,
        summary=summary_lines(config, basis, network, work),
        notes=tuple(map(session.word, reading_notes(recipe, rows, counts[-1]))),
    )


def _network(request: Plan) -> "Network":
    """The network of this name with what the options change of it."""
    names = ("per_host", "link_gb_s", "host_gb_s", "host_us")
    changes = {name: value for name in names if (value := getattr(request, name)) is not None}
    measured = dict[str, float]()
    if request.link is not None:
        try:
            measured = read_record(LinkResult, Path(request.link)).network()
        except OSError as error:
            works = command("bench link", procs=2, out="FILE")
            raise ConfigError(f"{given('link', request.link)} cannot be read: {error}. {works} writes one.") from None
    return replace(NETWORKS[request.network], **{**measured, **changes})


def _counts(text: str) -> list[int]:
    """Numbers of devices: `8..64` doubles, `8,12` is a list."""
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = int(match[1]), int(match[2])
        if 1 <= first <= last <= _MOST_DEVICES:
            return [first << i for i in range(32) if first << i < last] + [last]
    elif re.fullmatch(r"\d+(,\d+)*", text) and all(1 <= int(n) <= _MOST_DEVICES for n in text.split(",")):
        return [int(n) for n in text.split(",")]
    raise ConfigError(f"{given('devices', text)}: give a range such as 8..4096, or a list such as 8,16,64.")


# ----------------------------------------------------------------------------------------------------------- submitting


_WRITERS: dict[str, tuple[Callable[[Submission], str], str]] = {
    "slurm": (slurm_script, "sbatch"),
    "kubernetes": (kubernetes_manifest, "kubectl apply -f"),
    "ssh": (ssh_script, "bash"),
}
"""What writes the script of a scheduler, and the command that submits it."""


@frozen
class SubmittableJob:
    """A job that can be submitted: its script or manifest, and the file that it was written to, if any."""

    to: Scheduler
    job: "Submission"
    script: str
    file: Path | None

    @property
    def how(self) -> str:
        """The command that submits it."""
        return f"{_WRITERS[self.to][1]} {self.file or 'FILE'}"


def write_job(request: Submit, session: Session) -> SubmittableJob:
    """Make the script of a training run, and write it if a file is given. Raises ConfigError for a file that exists."""
    # Absolute, because processes on the hosts start in other folders.
    file = Path(request.recipe).resolve() if request.recipe.endswith(book.FILE_SUFFIXES) else None
    job = plan_submission(
        request.recipe,
        book.load(str(file or request.recipe)),
        Path(request.machine),
        request.settings,
        recipe_file=file,
    )
    submittable = SubmittableJob(
        to=request.to,
        job=job,
        script=_WRITERS[request.to][0](job),
        file=None if request.out is None else Path(request.out),
    )
    if submittable.file is not None:
        _write_new(submittable.file, submittable.script)
    if file is not None and request.to != "kubernetes":
        session.warn(f"{file} must be readable under this path on every host.")
    return submittable


def _write_new(path: Path, text: str) -> None:
    try:
        # x: a script that exists may have been edited.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{given('out', path)} exists already. Give another file, or remove it.") from None
    except FileNotFoundError:
        raise ConfigError(f"{given('out', path)}: the folder {path.parent} does not exist.") from None


plan = function(Plan, make_plan, "plan")
submit = function(Submit, write_job, "submit")


def hours_of(
    recipes: Sequence[str], run_or_rate: str, *, convert: bool
) -> tuple[list[tuple[float, tuple[float, float]]], list[str]]:
    """Hours of one device for each recipe with their range, and notes on what they are based on: for `recipes`."""
    speed, basis = speed_of(run_or_rate, convert=convert)
    notes = [
        f"Device hours are an ESTIMATE, {basis.text}: {CONVERSION_ERROR}. Training steps only, no evaluation, no "
        "scaling losses."
    ]
    if basis.ran is not None:
        notes.append(f"what ran: {basis.ran.line()}")
    every = [book.get(name) for name in recipes]
    return [hours_and_range(recipe, book.train_images(recipe), speed, basis) for recipe in every], notes
