"""`vernier plan`: predicts the scaling of a recipe. The model behind it is in `vernier.measure.planning`."""

import math
import re
import sys
from dataclasses import replace
from typing import Annotated, Any

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag, OptionalFloat, OptionalInt, Switch, optional
from vernier.cli.output import print_json, print_rows, say
from vernier.errors import EXIT_DONE, ConfigError, did_you_mean


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
    check: Switch = False,
    json: JsonFlag = False,
) -> int:
    """Predict throughput, time and energy of a recipe on many devices, from the measured speed of one.

    An estimate from compute, network, waiting for the slowest device, and input. --check shows its errors on published
    tables.

    Args:
        recipe: A built-in recipe or a .toml file.
        bench: A training run of one device, or the images per second at which one device trains this recipe.
        devices: Numbers of devices: a range that doubles, or a list.
        device_batch: Batch per device. Default: that of the run, or the recipe's global batch over the fewest devices.
        network: ethernet-10g, ethernet-100g, dgx-1, dgx-2, dgx-a100, dgx-h100 or hls-1; the next flags change it.
        per_host: Devices per host.
        link_gb_s: Bandwidth between the devices of a host, in GB/s per device and direction.
        host_gb_s: Bandwidth between hosts, in GB/s per host and direction, all adapters together.
        host_us: Latency between hosts, in microseconds.
        input_img_s: Images per second that a host can load. Default: no limit.
        spread: Standard deviation of step time between devices, in percent. Default: 1.
        watts: Power in watts per device, including its share of the host; adds the energy to the table.
        check: Compare the model with published tables instead.

    Examples:
        vernier plan nvidia-resnet50-90e --bench 2470 --devices 8..64 --network dgx-a100
        vernier plan nvidia-resnet50-90e --bench runs/RUN --devices 8,16,32
        vernier plan --check
    """
    if check:
        return _check(json)
    if recipe is None or bench is None:
        raise ConfigError(
            "Give a recipe and a speed: vernier plan RECIPE --bench RUN|IMG_PER_S; or vernier plan --check."
        )
    counts = _counts(devices)
    changes: dict[str, Any] = {"per_host": per_host, "link_gb_s": link_gb_s, "host_gb_s": host_gb_s, "host_us": host_us}
    for name, value in {**changes, "input_img_s": input_img_s, "spread": spread, "watts": watts}.items():
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(f"--{name.replace('_', '-')} {value:g} must be more than 0.")
    from vernier import recipes as book
    from vernier.measure.planning.plan import NETWORKS, plan_rows
    from vernier.measure.planning.workload import workload_of

    if network not in NETWORKS:
        raise ConfigError(f"There is no network {network!r} for --network. {did_you_mean(network, NETWORKS)}")
    net = replace(NETWORKS[network], **{name: value for name, value in changes.items() if value is not None})
    chosen = book.load(recipe).recipe
    work, basis = workload_of(chosen, bench, device_batch or max(1, chosen.global_batch // counts[0]))
    work = replace(
        work,
        spread=work.spread if spread is None else spread / 100,
        host_images_per_s=input_img_s,
        watts=watts,
    )
    images = chosen.schedule.epochs * book.train_images(chosen)
    rows = plan_rows(work, counts, device_batch or work.measured_batch, net, images)
    if json:
        print_json({"basis": basis, "network": net, "workload": work, "rows": rows})
    else:
        print_rows(rows, False)
        say(
            f"An ESTIMATE from {basis}; training steps only. `vernier plan --check` shows the errors of such estimates."
        )
    return EXIT_DONE


def _counts(text: str) -> list[int]:
    """Parse numbers of devices: `8..64` doubles, `8,12` is a list."""
    if match := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = int(match[1]), int(match[2])
        if 1 <= first <= last <= 10**6:
            return [first << i for i in range(32) if first << i < last] + [last]
    elif re.fullmatch(r"\d+(,\d+)*", text) and all(1 <= int(n) <= 10**6 for n in text.split(",")):
        return [int(n) for n in text.split(",")]
    raise ConfigError(f"--devices {text}: give a range such as 8..4096, or a list such as 8,16,64.")


def _check(json: bool) -> int:
    from vernier.measure.planning.published import check_rows

    rows = check_rows()
    print_rows(rows, json)
    if not json:
        errors = sorted(abs(row.error_percent) for row in rows)
        median, worst = errors[len(errors) // 2], errors[-1]
        sys.stdout.write(f"median error {median:.1f} %, worst {worst:.1f} %; nothing is fitted\n")
    return EXIT_DONE
