"""The request of `plan`: what a recipe would do on many devices."""

from typing import Literal

from vernier.requests.common import Assigned, Json
from vernier.requests.declaring import argument, option, request
from vernier.requests.values import FilePath, Fraction

from .common import batch_option, file_option, machine_advanced


@request("plan")
class Plan(Assigned, Json):
    """Predict throughput, time and energy of a recipe on many devices, from the measured speed of one.

    The recipe's global batch stays and is divided among the devices (strong scaling), because another batch is another
    training run. The estimate is made from compute, network, waiting for the slowest device, and input, corrected by
    what published tables reach of such predictions, with a range that covers 90 % of its errors on other systems.

    Examples:
        vernier plan nvidia-resnet50-90e --bench 2470 --devices 8..64 --network dgx-a100
        vernier plan shapes-quick --bench runs/RUN --set machine.bucket_mb=10
    """

    recipe: str = argument(
        help="A built-in recipe, the name of a model, or a .toml file.",
        metavar="RECIPE",
    )
    bench: str = option(
        help="A run that trained this recipe's model at its image size, best on one device; or the images per second "
        "at which one device trains this recipe.",
        metavar="RUN|IMG_PER_S",
    )
    devices: str = option(
        "8..4096", help="Numbers of devices: a range that doubles, or a list.", metavar="8..4096|8,16,32"
    )
    batch: int | None = batch_option(
        None,
        help="Batch per device at which the given images per second were measured; with weak scaling also that of "
        "every device.",
        default="that of the run, or the recipe's global batch over the fewest devices",
    )
    weak: bool = option(
        False, help="Let the global batch grow with the devices. It is then not the recipe's batch any more."
    )
    watts: float | None = option(
        None,
        help="Power per device in watts, including its part of the host; adds the energy to the table.",
        above=0,
        unit="W",
    )
    network: Literal["ethernet-10g", "ethernet-100g", "dgx-1", "dgx-2", "dgx-a100", "dgx-h100", "hls-1"] = option(
        "ethernet-100g", help="Network between the devices; the next options change parts of it.", group="machine"
    )
    per_host: int | None = machine_advanced(None, help="Devices per host.", default="that of the network", low=1)
    link: FilePath | None = file_option(
        None,
        help="What `vernier bench link` measured: bandwidth, latency and devices per host; the options below win.",
        default="that of the network",
        group="machine",
    )
    link_gb_s: float | None = machine_advanced(
        None,
        help="Bandwidth between the devices of a host, in GB/s per device and direction.",
        default="that of the network",
        above=0,
        unit="GB/s",
    )
    host_gb_s: float | None = machine_advanced(
        None,
        help="Bandwidth between hosts, in GB/s per host and direction, all adapters together.",
        default="that of the network",
        above=0,
        unit="GB/s",
    )
    host_us: float | None = machine_advanced(
        None, help="Latency between hosts, in microseconds.", default="that of the network", above=0, unit="us"
    )
    input_img_s: float | None = machine_advanced(
        None, help="Images per second that a host can load.", default="no limit", above=0, unit="img/s"
    )
    spread: Fraction | None = machine_advanced(
        None, help="Standard deviation of the step time between devices.", default="1%", above=0
    )
