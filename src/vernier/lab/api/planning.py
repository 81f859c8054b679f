"""Predictions for many devices: `vernier plan`, and the function of that name. The model is in `lab.planning`."""

import re
from dataclasses import replace
from pathlib import Path

from vernier import recipes as book
from vernier.api.functions import function
from vernier.api.session import Session
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.planning.plan import NETWORKS, Network, Workload
from vernier.lab.planning.table import PlanRow, divide_batch, plan_rows, reading_notes
from vernier.lab.planning.workload import Basis, summary_lines, workload_of
from vernier.lab.records.links import LinkResult
from vernier.lab.requests.planning import Plan
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
    work, basis = workload_of(config, request.bench, given_batch, network)
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


plan = function(Plan, make_plan, "plan")
