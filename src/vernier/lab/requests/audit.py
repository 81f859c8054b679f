"""The requests of `audit`, `certify` and `verify`."""

from typing import Literal

from vernier.requests.common import Json, OnDevice, Quiet
from vernier.requests.declaring import argument, option, request
from vernier.requests.values import FilePath

from .common import out_file


@request("audit")
class Audit(OnDevice, Quiet, Json):
    """Compute parts of a run again, and find out whether its devices computed right.

    Training records fingerprints, which are checksums of the bits of gradients, weights and optimizer state. An audit
    starts at checkpoints that the run kept, trains from each to the next one on this machine, and compares every
    fingerprint. If one differs, the output names the steps between which the fault happened, the tensors, and, with
    exact reduction, the virtual shards and the device that computed them. One process audits a run of any number of
    processes with `machine.reduction=exact`, and runs of one process. The run is not changed.

    A difference is a fault only on the same kind of processor with the same versions. If they are not the same, a
    warning is printed before the audit starts, and a difference is reported as undecided. The exit code is 1 if
    anything differs.

    Examples:
        vernier audit runs/RUN --sample 2
        vernier audit runs/RUN --full --procs 2
    """

    run: FilePath = argument(help="The run directory.", metavar="RUN")
    sample: int = option(5, help="Number of random intervals between checkpoints to replay.", low=1)
    full: bool = option(False, help="Replay all intervals.")
    steps: str | None = option(
        None, help="Replay the intervals with these steps, such as 100:200.", default="random ones", metavar="A:B"
    )
    procs: int = option(1, help="Number of processes that replay intervals at the same time.", low=1)


@request("certify")
class Certify(Quiet, Json):
    """Write a certificate of a finished run: an in-toto statement with everything that identifies it.

    It has the configuration, the data, the environment, the hashes of all files, the chain of fingerprints, the result
    with its interval, and how it agrees with the published one. `vernier verify` checks the run against it. A
    signature by an SSH key is a second file, with `.sig` at the end of its name.

    Examples:
        vernier certify runs/RUN
        vernier certify runs/RUN --out run.json --key ~/.ssh/id_ed25519
    """

    run: FilePath = argument(help="The run directory.", metavar="RUN")
    out: FilePath | None = out_file(
        None, help="File to write; an existing one is replaced.", default="RUN/certificate.json"
    )
    key: FilePath | None = option(None, help="Private SSH key that signs the file.", default="no signature")


@request("verify")
class Verify(OnDevice, Quiet, Json):
    """Verify that a run is as its certificate has it, and that its results can be computed again.

    The exit code is 1 if anything differs.

    Examples:
        vernier verify runs/RUN/certificate.json
        vernier verify runs/RUN/certificate.json --depth full --key id_ed25519.pub
    """

    file: FilePath = argument(help="The certificate.", metavar="FILE")
    depth: Literal["hashes", "sample", "full"] = option(
        "hashes", help="Compare hashes only, or also replay five random intervals, or all of them."
    )
    run: FilePath | None = option(None, help="The run directory, if it was moved.", default="that of the certificate")
    key: FilePath | None = option(None, help="Public SSH key that must have signed the file.", default="not checked")
