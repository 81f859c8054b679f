"""The request of `doctor`."""

from vernier.requests.common import Json, OnDevice, Quiet
from vernier.requests.declaring import option, request
from vernier.requests.values import Duration


@request("doctor")
class Doctor(Json, Quiet, OnDevice):
    """Show what this machine can do: devices, precisions, modes, speed, and how to install missing packages.

    The speed test trains a ResNet-50 at 224 pixels on random images; it is a probe, not a benchmark. The test of
    devices tries each of them instead, every trial in a process of its own with a time limit, and prints one page that
    you can send to us.

    Examples:
        vernier doctor
        vernier doctor --no-probe
        vernier doctor --test-devices > devices.txt
    """

    probe: bool = option(True, help="Run the speed test.")
    time: Duration = option("10s", help="Length of the speed test.", names=("--seconds",), bare="s", above=0, high=600)
    test_devices: bool = option(
        False,
        help="Try what works on each device, or on the one kind given: training in every precision, evaluation, "
        "compilation, two processes, copies and events. Takes one to three minutes per kind of device.",
        names=("--devices",),
    )
