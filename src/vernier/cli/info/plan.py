"""`vernier plan`: predicts the scaling of a recipe, and writes what submits it to a cluster.

The model behind it is in `vernier.measure.planning`, the scripts are in its package `submission`.
"""

import math
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag, OptionalFile, OptionalFloat, OptionalInt, SetFlag, Switch, optional
from vernier.cli.output import print_json, print_rows, say, show
from vernier.errors import EXIT_DONE, ConfigError, did_you_mean

if TYPE_CHECKING:
    from vernier.config import Recipe
    from vernier.measure.planning.plan import Network
    from vernier.measure.planning.published import CheckRow
    from vernier.measure.planning.table import PlanRow
    from vernier.measure.planning.workload import Basis

SHOWN_CONVERSIONS = 8
Scheduler = Literal["slurm", "kubernetes", "ssh"]


def plan(
    recipe: Annotated[Positional[str | None], optional("[RECIPE]")] = None,
    /,
    *,
    bench: Annotated[str | None, optional("RUN|IMG_PER_S")] = None,
    devices: Annotated[str, arg(metavar="8..4096|8,16,32")] = "8..4096",
    device_batch: Annotated[int | None, optional("N", name="batch")] = None,
    network: Annotated[str, arg(metavar="NAME")] = "ethernet-100g",
    per_host: OptionalInt = None,
    link_gb_s: OptionalFloat = None,
    host_gb_s: OptionalFloat = None,
    host_us: OptionalFloat = None,
    input_img_s: OptionalFloat = None,
    spread: OptionalFloat = None,
    watts: OptionalFloat = None,
    weak: Switch = False,
    convert: Switch = False,
    check: Switch = False,
    submit: Annotated[Scheduler | None, optional("slurm|kubernetes|ssh")] = None,
    machine: OptionalFile = None,
    out: OptionalFile = None,
    settings: SetFlag = (),
    json: JsonFlag = False,
) -> int:
    """Predict throughput, time and energy of a recipe on many devices, from the measured speed of one.

    The recipe's global batch stays and is divided among the devices (strong scaling), as another batch is another
    training. An estimate from compute, network, waiting for the slowest device, and input, corrected by what published
    tables reach of such predictions, with a range that covers 90 % of its errors on other systems (--check).

    With --submit: write a script or manifest that trains the recipe on the hosts of a machine file instead.

    Args:
        recipe: A built-in recipe, a network's name, or a .toml file.
        bench: A run that trained this recipe's network at its image size, best on one device; or the images per second
            at which one device trains this recipe.
        devices: Numbers of devices: a range that doubles, or a list.
        device_batch: Batch per device at which --bench IMG_PER_S was measured; with --weak also that of every device.
            Default: that of the run, or the recipe's global batch over the fewest devices.
        network: ethernet-10g, ethernet-100g, dgx-1, dgx-2, dgx-a100, dgx-h100 or hls-1; the next flags change it.
        per_host: Devices per host.
        link_gb_s: Bandwidth between the devices of a host, in GB/s per device and direction.
        host_gb_s: Bandwidth between hosts, in GB/s per host and direction, all adapters together.
        host_us: Latency between hosts, in microseconds.
        input_img_s: Images per second that a host can load. Default: no limit.
        spread: Standard deviation of step time between devices, in percent. Default: 1.
        watts: Power in watts per device, including its share of the host; adds the energy to the table.
        weak: Let the global batch grow with the devices. It is then not the recipe's, and the training another one.
        convert: Use a run of another network or image size, its speed converted by multiply-accumulates, with the
            error that such conversions have.
        check: Predict every published table from those of all other systems, and convert measured speeds, instead: the
            errors behind the ranges.
        submit: Write what submits the training, instead of a prediction: a batch script for Slurm, a JobSet for
            Kubernetes, or a shell script that starts torchrun through ssh.
        machine: With --submit: a .toml file with the tables [machine], the settings of that name, and [job]: hosts,
            processes per host, time limit, shared folder.
        out: With --submit: file to write; one that exists stays as it is. Default: standard output.

    Examples:
        vernier plan nvidia-resnet50-90e --bench 2470 --devices 8..64 --network dgx-a100
        vernier plan shapes-quick --bench runs/RUN --set machine.all_reduce=hierarchical
        vernier plan nvidia-resnet50-90e --submit slurm --machine cluster.toml --out train.sbatch
        vernier plan --check
    """
    if submit is not None:
        if bench is not None or check or weak or convert:
            raise ConfigError(
                "--submit writes a script and predicts nothing: leave out --bench and flags that need it."
            )
        return _submit(recipe, submit, machine, out, settings, json)
    if machine is not None or out is not None:
        raise ConfigError("--machine and --out belong to --submit slurm, kubernetes or ssh.")
    if check:
        if settings:
            raise ConfigError("--check predicts published tables, which have no settings: leave out --set.")
        return _check(json)
    if recipe is None or bench is None:
        raise ConfigError(
            "Give a recipe and a speed: vernier plan RECIPE --bench RUN|IMG_PER_S; or vernier plan --check."
        )
    counts = _counts(devices)
    _check_positive(batch=device_batch, input_img_s=input_img_s, spread=spread, watts=watts)
    net = _network(network, per_host=per_host, link_gb_s=link_gb_s, host_gb_s=host_gb_s, host_us=host_us)
    from vernier import recipes as book
    from vernier.measure.planning.table import divide_batch, plan_rows
    from vernier.measure.planning.workload import describe_exchange, workload_of

    config = book.change(book.load(recipe), {}, settings).config
    chosen = config.recipe
    if device_batch is not None and not weak and not _is_number(bench):
        raise ConfigError(
            f"--batch {device_batch}: the batch per device follows from the recipe's global batch of "
            f"{chosen.global_batch:,} and the number of devices. Leave it out, or let the batch grow with --weak."
        )
    given_batch = device_batch or max(1, chosen.global_batch // counts[0])
    work, basis = workload_of(config, bench, given_batch, net, convert=convert)
    work = replace(
        work,
        spread=work.spread if spread is None else spread / 100,
        host_images_per_s=input_img_s,
        watts=watts,
    )
    each = device_batch or work.measured_batch
    batches = {count: count * each for count in counts} if weak else divide_batch(counts, chosen.global_batch)
    images = chosen.schedule.epochs * book.train_images(chosen)
    rows = plan_rows(work, batches, chosen.global_batch, net, images)
    if json:
        scaling = "weak" if weak else "strong"
        print_json({"basis": basis, "network": net, "workload": work, "scaling": scaling, "rows": rows})
        return EXIT_DONE
    _print_plan(chosen, basis, net, describe_exchange(work, config.machine), rows, counts[-1])
    return EXIT_DONE


def _check_positive(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"--{name.replace('_', '-')} {value:g} must be more than 0.")


def _network(name: str, **changes: Any) -> "Network":
    """The network of this name with what the flags change of it."""
    _check_positive(**changes)
    from vernier.measure.planning.plan import NETWORKS

    if name not in NETWORKS:
        raise ConfigError(f"There is no network {name!r} for --network. {did_you_mean(name, NETWORKS)}")
    return replace(NETWORKS[name], **{key: value for key, value in changes.items() if value is not None})


def _submit(
    recipe: str | None, form: Scheduler, machine: str | None, out: str | None, settings: tuple[str, ...], json: bool
) -> int:
    """Write the script of a training to a file, or print it."""
    if recipe is None or machine is None:
        raise ConfigError(f"Give a recipe and a machine file: vernier plan RECIPE --submit {form} --machine FILE.toml.")
    from vernier import recipes as book
    from vernier.measure.planning.submission.job import plan_submission
    from vernier.measure.planning.submission.kubernetes import kubernetes_manifest
    from vernier.measure.planning.submission.slurm import slurm_script
    from vernier.measure.planning.submission.ssh import ssh_script

    file = Path(recipe).expanduser().resolve() if recipe.endswith(book.FILE_SUFFIXES) else None
    submission = plan_submission(
        recipe, book.load(str(file or recipe)), Path(machine).expanduser(), settings, recipe_file=file
    )
    writers = {"slurm": slurm_script, "kubernetes": kubernetes_manifest, "ssh": ssh_script}
    text = writers[form](submission)
    if out is not None:
        _write_new(Path(out).expanduser(), text)
    if json:
        print_json({"submit": form, "file": out, "job": submission, "script": None if out else text})
        return EXIT_DONE
    if out is None:
        show(*text.splitlines())
    else:
        how = {"slurm": f"sbatch {out}", "kubernetes": f"kubectl apply -f {out}", "ssh": f"bash {out}"}
        show(f"{out}: {submission.describe()}. Submit it: {how[form]}")
    if file is not None and form != "kubernetes":
        say(f"{file} must be readable under this path on every host.")
    return EXIT_DONE


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigError(f"--out {path} exists already. Give another file, or remove it.") from None
    except FileNotFoundError:
        raise ConfigError(f"--out {path}: the folder {path.parent} does not exist.") from None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _print_plan(
    recipe: "Recipe", basis: "Basis", network: "Network", exchange: str, rows: "list[PlanRow]", most: int
) -> None:
    """Print what the plan is for and based on, the table, and how to read it."""
    from vernier.measure.planning.table import EXPLANATIONS, divisors_near, least_published_batch, table_rows
    from vernier.models import shown_name

    batch = f"{recipe.global_batch:,}"
    lines = [
        f"plan for    {recipe.name}: {shown_name(recipe.model)} at {recipe.data.image_px} px, "
        f"{recipe.schedule.epochs:g} epochs, global batch {batch}",
        f"speed from  {basis.text}",
        *([f"what ran    {basis.ran.line()}"] if basis.ran else []),
        f"network     {network.name}, {network.per_host} devices per host",
        f"gradients   {exchange}",
    ]
    show(*lines)
    print_rows(table_rows(rows), False, droppable=("not hidden ms", "step ms", "per device"))
    if all(row.recipes_batch for row in rows):
        notes = [f"Strong scaling: the recipe's global batch of {batch} is divided among the devices."]
        if rows[-1].devices < most:
            notes.append(
                f"Stopped at {rows[-1].devices:,} devices: with {most:,}, a device would have less than one image. "
                "--weak lets the batch grow."
            )
    else:
        notes = [f"Weak scaling: the batch grows with the devices and is not the recipe's {batch}: another training."]
    for row in rows:
        if not row.divides:
            counts = " or ".join(f"{n:,}" for n in divisors_near(row.devices, row.global_batch))
            notes.append(
                f"{row.global_batch:,} images do not divide among {row.devices:,} devices: vernier train would refuse "
                f"it, and all wait for those with one image more. {counts} devices would do, or another --global-batch."
            )
    least = least_published_batch()
    if any(row.batch_per_device < least for row in rows):
        notes.append(
            f"Rows with less than {least} images per device are extrapolated: no published table has "
            "so few, and their range is no more than a guess."
        )
    notes.append(
        "An ESTIMATE of the training steps. Ranges cover 90 % of the errors on published systems: vernier plan --check"
    )
    say(*notes, *EXPLANATIONS)


def _counts(text: str) -> list[int]:
    """Parse numbers of devices: `8..64` doubles, `8,12` is a list."""
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = int(match[1]), int(match[2])
        if 1 <= first <= last <= 10**6:
            return [first << i for i in range(32) if first << i < last] + [last]
    elif re.fullmatch(r"\d+(,\d+)*", text) and all(1 <= int(n) <= 10**6 for n in text.split(",")):
        return [int(n) for n in text.split(",")]
    raise ConfigError(f"--devices {text}: give a range such as 8..4096, or a list such as 8,16,64.")


def _check_cells(row: "CheckRow") -> dict[str, str]:
    low, high = row.range_percent
    return {
        "system": row.system,
        "what": row.what,
        "devices": f"{row.base} to {row.devices:,}",
        "published": f"{row.published_percent:.0f} %",
        "predicted (range)": f"{row.predicted_percent:.0f} % ({low:.0f} to {high:.0f})",
        "error": f"{row.error_percent:+.0f} %",
        "in range": "yes" if row.in_range else "NO",
    }


def _check(json: bool) -> int:
    from vernier.measure.planning.conversion import conversion_error, conversion_rows
    from vernier.measure.planning.published import check_rows, errors_by_system

    rows, systems, conversions = check_rows(), errors_by_system(), conversion_rows()
    if json:
        print_json({"scaling": rows, "systems": systems, "conversions": conversions})
        return EXIT_DONE
    print_rows([_check_cells(row) for row in rows], False)
    print_rows(systems, False)
    errors, inside = [row.error_percent for row in rows], sum(row.in_range for row in rows)
    median = statistics.median(map(abs, errors))
    show(
        f"scaling: {len(rows)} published speeds of {len(systems)} systems, each predicted from the tables of the other "
        f"systems alone: off by {min(errors):+.1f} to {max(errors):+.1f} % (median {median:.1f} %); the range covers "
        f"{inside} of them ({100 * inside / len(rows):.0f} %; it is meant to cover 90 %)"
    )
    print_rows(sorted(conversions, key=lambda row: -abs(row.error_percent))[:SHOWN_CONVERSIONS], False)
    show(
        f"conversion by multiply-accumulates: {conversion_error()}; above are the worst {SHOWN_CONVERSIONS} (--json "
        "has all)"
    )
    return EXIT_DONE
