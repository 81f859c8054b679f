"""Predictions for many devices and scripts for clusters: `vernier plan` and `submit`, and the functions of that name.

The model behind a prediction is in `measure.planning`, the scripts are in its package `submission`.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import command, given, use
from vernier.requests.planning import Plan, Scheduler, Submit
from vernier.requests.values import fraction

from .functions import function
from .session import Session

if TYPE_CHECKING:
    from vernier.measure.planning.conversion import ConversionRow
    from vernier.measure.planning.plan import Network, Workload
    from vernier.measure.planning.published import CheckRow, SystemErrors
    from vernier.measure.planning.submission.job import Submission
    from vernier.measure.planning.table import PlanRow
    from vernier.measure.planning.workload import Basis

_MOST_DEVICES = 10**6


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


@frozen
class PlanAccuracy:
    """How far predictions are off: every published row, the systems, and speeds converted to another model."""

    scaling: tuple["CheckRow", ...]
    systems: tuple["SystemErrors", ...]
    conversions: tuple["ConversionRow", ...]


def make_plan(request: Plan, session: Session) -> ScalingPlan | PlanAccuracy:
    """Predict a recipe on many devices, or the errors of such predictions. Raises ConfigError."""
    if request.accuracy:
        if request.settings:
            raise ConfigError(
                f"{given('accuracy', True)} predicts published tables, without settings. Omit {given('settings')}."
            )
        from vernier.measure.planning.conversion import conversion_rows
        from vernier.measure.planning.published import check_rows, errors_by_system

        return PlanAccuracy(scaling=check_rows(), systems=tuple(errors_by_system()), conversions=conversion_rows())
    if request.recipe is None or request.bench is None:
        raise ConfigError(
            f"Give a recipe and a speed: {command('plan', 'RECIPE', bench='RUN|IMG_PER_S')}; or "
            f"{command('plan', accuracy=True)}."
        )
    return _predict(request, request.recipe, request.bench, session)


def _predict(request: Plan, name: str, bench: str, session: Session) -> ScalingPlan:
    from vernier import recipes
    from vernier.measure.planning.table import divide_batch, plan_rows, reading_notes
    from vernier.measure.planning.workload import describe_exchange, summary_lines, workload_of

    counts, network = _counts(request.devices), _network(request)
    config = recipes.change(recipes.load(name), {}, request.settings).config
    recipe = config.recipe
    if request.batch is not None and not request.weak and not re.fullmatch(r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", bench):
        raise ConfigError(
            f"{given('batch', request.batch)}: the batch per device follows from the recipe's global batch of "
            f"{recipe.global_batch:,} and the number of devices. Omit it, or let the batch grow with "
            f"{use('weak', True)}."
        )
    given_batch = request.batch or max(1, recipe.global_batch // counts[0])
    work, basis = workload_of(config, bench, given_batch, network, convert=request.convert)
    work = replace(
        work,
        spread=work.spread if request.spread is None else fraction(request.spread),
        host_images_per_s=request.input_img_s,
        watts=request.watts,
    )
    each = request.batch or work.measured_batch
    batches = {count: count * each for count in counts} if request.weak else divide_batch(counts, recipe.global_batch)
    images = recipe.schedule.epochs * recipes.train_images(recipe)
    rows = tuple(plan_rows(work, batches, recipe.global_batch, network, images))
    return ScalingPlan(
        basis=basis,
        network=network,
        workload=work,
        scaling="weak" if request.weak else "strong",
        rows=rows,
        summary=summary_lines(recipe, basis, network, describe_exchange(work, config.machine)),
        notes=tuple(map(session.word, reading_notes(recipe, rows, counts[-1]))),
    )


def _network(request: Plan) -> "Network":
    """The network of this name with what the options change of it."""
    from vernier.measure.planning.plan import NETWORKS

    changes = {name: getattr(request, name) for name in ("per_host", "link_gb_s", "host_gb_s", "host_us")}
    return replace(NETWORKS[request.network], **{name: value for name, value in changes.items() if value is not None})


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
        programs = {"slurm": "sbatch", "kubernetes": "kubectl apply -f", "ssh": "bash"}
        return f"{programs[self.to]} {self.file or 'FILE'}"


def write_job(request: Submit, session: Session) -> SubmittableJob:
    """Make the script of a training run, and write it if a file is given. Raises ConfigError for a file that exists."""
    from vernier import recipes
    from vernier.measure.planning.submission.job import plan_submission
    from vernier.measure.planning.submission.kubernetes import kubernetes_manifest
    from vernier.measure.planning.submission.slurm import slurm_script
    from vernier.measure.planning.submission.ssh import ssh_script

    file = Path(request.recipe).resolve() if request.recipe.endswith(recipes.FILE_SUFFIXES) else None
    job = plan_submission(
        request.recipe,
        recipes.load(str(file or request.recipe)),
        Path(request.machine),
        request.settings,
        recipe_file=file,
    )
    writers: dict[str, Callable[[Submission], str]] = {
        "slurm": slurm_script,
        "kubernetes": kubernetes_manifest,
        "ssh": ssh_script,
    }
    submittable = SubmittableJob(
        to=request.to,
        job=job,
        script=writers[request.to](job),
        file=None if request.out is None else Path(request.out),
    )
    if submittable.file is not None:
        _write_new(submittable.file, submittable.script)
    if file is not None and request.to != "kubernetes":
        session.warn(f"{file} must be readable under this path on every host.")
    return submittable


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"{given('out', path)} exists already. Give another file, or remove it.") from None
    except FileNotFoundError:
        raise ConfigError(f"{given('out', path)}: the folder {path.parent} does not exist.") from None


plan = function(Plan, make_plan, "plan")
submit = function(Submit, write_job, "submit")
