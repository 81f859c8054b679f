"""The request of `doctor`."""

from vernier.requests.common import Json, Quiet
from vernier.requests.declaring import request


@request("doctor")
class Doctor(Json, Quiet):
    """Show what this machine can do: devices, precisions, modes, and how to install missing packages.

    `vernier bench train` measures the speed, `vernier study run` tries every device in a process of its own.

    Examples:
        vernier doctor
        vernier doctor --json
    """
