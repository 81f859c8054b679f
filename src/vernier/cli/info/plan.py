"""`vernier plan`: scaling on paper."""

import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag, OptionalFloat, OptionalInt, optional
from vernier.cli.output import print_json, print_rows, say
from vernier.config import Recipe
from vernier.errors import EXIT_DONE, ConfigError, did_you_mean

if TYPE_CHECKING:
    from vernier.measure.planning.plan import Network, Workload


def plan(
    recipe: Annotated[Positional[str | None], arg(metavar="RECIPE", help_behavior_hint="")] = None,
    /,
    *,
    bench: Annotated[str | None, optional("RUN|IMG_PER_S")] = None,
    devices: Annotated[str, arg(metavar="8..4096|8,16,32")] = "8..4096",
    device_batch: OptionalInt = None,
    network: Annotated[str, arg(metavar="NAME")] = "ethernet-100g",
    per_host: OptionalInt = None,
    link_gb_s: OptionalFloat = None,
    host_gb_s: OptionalFloat = None,
    host_us: OptionalFloat = None,
    input_img_s: OptionalFloat = None,
    spread: OptionalFloat = None,
    watts: OptionalFloat = None,
    check: bool = False,
    json: JsonFlag = False,
) -> int:
    """Predict throughput, time and energy of a recipe on many devices, from the measured speed of one.

    An estimate: it knows compute, network, waiting for the slowest device and input. --check shows how far it is off
    on published tables.

    Args:
        recipe: A built-in recipe or a .toml file.
        bench: A training run of one device, or the images a second at which one device trains this recipe.
        devices: How many: doubling from first to last, or a list.
        device_batch: Images a device takes; left out: the run's, or the recipe's global batch over the fewest devices.
        network: ethernet-10g, ethernet-100g, dgx-1, dgx-2, dgx-a100, dgx-h100 or hls-1; the next flags change it.
        per_host: Devices of a host.
        link_gb_s: GB/s of a device to its neighbours, one way.
        host_gb_s: GB/s of a host to other hosts, all adapters, one way.
        host_us: Latency between hosts, microseconds.
        input_img_s: Images a second that a host can load; left out: no limit.
        spread: Standard deviation of step time between devices, in percent; left out: 1.
        watts: Of one device with its share of the host, for energy.
        check: Compare the model with published tables instead.
    """
    if check:
        return _check(json)
    if recipe is None or bench is None:
        raise ConfigError(
            "Give a recipe and a speed: vernier plan RECIPE --bench RUN|IMG_PER_S; or vernier plan --check."
        )
    counts = _counts(devices)
    changes = {"per_host": per_host, "link_gb_s": link_gb_s, "host_gb_s": host_gb_s, "host_us": host_us}
    net = _network(network, changes)
    from vernier import recipes as book

    chosen = book.load(recipe).recipe
    work, basis = _workload(chosen, bench, device_batch or max(1, chosen.global_batch // counts[0]))
    work = replace(
        work,
        spread=work.spread if spread is None else _positive("--spread", spread) / 100,
        host_images_per_s=None if input_img_s is None else _positive("--input-img-s", input_img_s),
        watts=None if watts is None else _positive("--watts", watts),
    )
    rows = _rows(chosen, book.train_images(chosen), work, counts, device_batch or work.measured_batch, net)
    if json:
        print_json({"basis": basis, "network": asdict(net), "workload": asdict(work), "rows": rows})
    else:
        print_rows(rows, False)
        say(f"An ESTIMATE from {basis}; training steps only. `vernier plan --check` shows how such estimates miss.")
    return EXIT_DONE


def _rows(
    recipe: Recipe, images: int, work: "Workload", counts: list[int], batch: int, net: "Network"
) -> list[dict[str, Any]]:
    from vernier.measure.planning.plan import hours, kilowatt_hours, predict

    rows, whole = [], recipe.schedule.epochs * images
    for count in counts:
        found = predict(work, count, batch, net)
        row: dict[str, Any] = {
            "devices": count,
            "global_batch": count * batch,
            "img_per_s_total": round(found.images_per_s_total, 1),
            "efficiency_percent": round(100 * found.efficiency, 1),
            "step_ms": round(1000 * count * batch / found.images_per_s_total, 2),
            "exposed_ms": round(found.exposed_ms, 3),
            "limit": found.limit,
            "hours": round(hours(whole, found.images_per_s_total), 3),
        }
        if work.watts is not None:
            row["kwh"] = round(kilowatt_hours(whole, found, work.watts), 2)
        rows.append(row)
    return rows


def _workload(recipe: Recipe, bench: str, batch: int) -> tuple["Workload", str]:
    from vernier.measure.planning.estimate import gmac
    from vernier.measure.planning.plan import Workload

    parameters = _parameters(recipe)
    try:
        rate = float(bench)
        basis = f"{rate:g} img/s of one device, as given"
    except ValueError:
        from vernier.config import Config, from_dict
        from vernier.store import RunDir

        run = RunDir.open(Path(bench))
        training = (run.read_status().get("summary") or {}).get("training")
        if not training:
            raise ConfigError(f"{bench} has no measured training speed yet. Let it finish, or give a number.") from None
        was = from_dict(Config, run.read_config())
        rate = training["images_per_s_per_device"]
        if (was.recipe.model, was.recipe.data.image_px) != (recipe.model, recipe.data.image_px):
            theirs = gmac(was.recipe.model, was.recipe.data.image_px, len(was.recipe.data.mean))
            rate *= theirs / gmac(recipe.model, recipe.data.image_px, len(recipe.data.mean))
        batch = was.recipe.global_batch // was.machine.procs // was.machine.accumulation
        basis = f"{rate:,.1f} img/s a device, from {run.path.name} ({was.machine.procs} process(es))"
    return Workload(images_per_s=_positive("--bench", rate), measured_batch=batch, gradient_bytes=4 * parameters), basis


def _parameters(recipe: Recipe) -> int:
    import torch

    from vernier.models import build, info

    spec = recipe.model
    with torch.device("meta"):
        net = build(
            spec.name, num_classes=spec.num_classes or info(spec.name).classes, in_channels=len(recipe.data.mean),
            stem=spec.stem, width=spec.width, blurpool=spec.blurpool,
        )  # fmt: skip
    return sum(p.numel() for p in net.parameters())


def _counts(text: str) -> list[int]:
    """`8..64` doubles; `8,12` is a list."""
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = int(match[1]), int(match[2])
        if 1 <= first <= last <= 10**6:
            return [first << i for i in range(32) if first << i < last] + [last]
    elif re.fullmatch(r"\d+(,\d+)*", text) and all(1 <= int(n) <= 10**6 for n in text.split(",")):
        return [int(n) for n in text.split(",")]
    raise ConfigError(f"--devices {text}: give a range such as 8..4096, or a list such as 8,16,64.")


def _network(name: str, changes: dict[str, Any]) -> "Network":
    from vernier.measure.planning.plan import NETWORKS

    if name not in NETWORKS:
        raise ConfigError(f"--network {name} is not known. {did_you_mean(name, NETWORKS)}")
    given = {key: _positive(f"--{key.replace('_', '-')}", value) for key, value in changes.items() if value is not None}
    return replace(NETWORKS[name], **given)


def _positive(flag: str, value: float) -> Any:
    if not 0 < value < float("inf"):
        raise ConfigError(f"{flag} {value:g} must be more than 0.")
    return value


def _check(json: bool) -> int:
    from vernier.measure.planning.plan import PUBLISHED, compared

    rows: list[dict[str, Any]] = []
    for row in PUBLISHED:
        predicted, error = compared(row)
        scale = row.base / row.base_images_per_s / row.devices
        rows.append({
            "what": row.what, "network": row.network, "from": row.base, "to": row.devices,
            "published_img_per_s": round(row.images_per_s), "published_percent": round(100 * row.images_per_s * scale, 1),
            "predicted_percent": round(100 * predicted * scale, 1), "error_percent": round(error, 1), "source": row.source,
        })  # fmt: skip
    print_rows(rows, json)
    if not json:
        errors = sorted(abs(r["error_percent"]) for r in rows)
        sys.stdout.write(
            f"median error {errors[len(errors) // 2]:.1f} %, worst {errors[-1]:.1f} %; nothing is fitted\n"
        )
    return EXIT_DONE
