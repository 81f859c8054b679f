"""Requests of `study`: measure the devices of a machine, compare them, and predict what a study can find."""

from typing import Literal

from vernier.requests.common import Json, OnDevice, Quiet, WithPrecision
from vernier.requests.declaring import Request, argument, option, request, shared
from vernier.requests.values import Duration, FilePath, Fraction, Pairs

from .common import batch_option, file_option, machine_advanced, measuring_advanced, out_file, out_folder


@shared
class Columns(Request):
    """Actions that read tables of step times."""

    columns: Pairs | None = option(
        None,
        help="Which columns of a CSV file hold step_time, device, host, cabinet (any group of hosts), repeat, freq, "
        "power, temp and workload. For a rate such as img/s write speed instead of step_time.",
        metavar="step_time=NAME,device=NAME,...",
        group="data",
    )
    units: Pairs | None = option(
        None,
        help="Unit of the step time if the file does not state it: ms (s, us, ns, min) or img/s. With units of "
        "sensors: step_time=ms,power=mW,freq=GHz.",
        metavar="UNIT|step_time=UNIT,power=UNIT,...",
        group="data",
    )


@shared
class Sources(Columns):
    """Actions that read studies."""

    sources: tuple[FilePath, ...] = argument(
        help="Study directories, CSV files or logs, or folders of them; several are analyzed together.",
        metavar="CSV|DIR...",
        repeats=True,
    )


@request("study run")
class StudyRun(OnDevice, WithPrecision, Quiet, Json):
    """Measure every device of this machine several times, in random order, to see whether they are equal.

    Run it once per machine: `vernier study merge` joins several machines, `vernier study analyze` lists which devices
    are slow. Each repeat runs in its own process, pinned to its device, after the device has cooled down. To resume an
    interrupted study, run the same command again.

    Examples:
        vernier study run --workload sgemm --repeats 3
        vernier study run --workload resnet50 --batch 8 --iterations 50
        vernier study run --workload exact --iterations 100
    """

    workload: Literal["resnet50", "sgemm", "bandwidth", "shapes", "exact"] = option(
        "resnet50",
        help="Training steps on a fixed batch (resnet50) or of the built-in recipe (shapes), matrix products (sgemm), "
        "copies in memory (bandwidth), or steps whose results must be the same bits on every device (exact).",
    )
    # As many as in the SC22 study.
    iterations: int = option(500, help="Iterations per repeat; each is timed.", low=2)
    repeats: int = option(5, help="Repeats per device.", low=1)
    batch: int = batch_option(64, help="Images per iteration, for resnet50 and shapes.", sets="global_batch")
    out: FilePath | None = out_folder(
        None,
        help="Directory of the study.",
        default="in runs/: the same study if it was interrupted within a day, otherwise a new one",
    )
    allow_slow: bool = machine_advanced(
        False, help="Allow a precision that this device has no hardware for.", sets="machine.allow_slow"
    )
    virtual: int = machine_advanced(
        0,
        help="Number of simulated devices to measure on the real ones, labeled as simulated; 0: the real devices.",
        low=0,
    )
    slow: Pairs | None = machine_advanced(
        None, help="Simulated devices to slow down, and by which factor: 3=1.08,7=1.05.", metavar="INDEX=FACTOR,..."
    )
    pause: Duration = measuring_advanced(
        "5s", help="Time between repeats if there is no temperature sensor to wait for.", low=0
    )
    kernels: int = measuring_advanced(3, help="Extra iterations to profile for the kernel table; 0: none.", low=0)
    seed: int = measuring_advanced(0, help="Seed of the random order.")


@request("study analyze")
class StudyAnalyze(Sources, Json):
    """Find slow devices: how much devices differ, which ones are slow, and whether it is the device or noise.

    Reads study directories, the CSV files of the SC22 study, nvprof traces, DLLogger lines, raport.json, MLPerf logs,
    and any other CSV file whose columns are named.

    Examples:
        vernier study analyze runs/STUDY
        vernier study analyze fleet.csv --columns step_time=time_ms,device=serial
    """

    matter: Fraction = option(
        "1%", help="Smaller slowdowns are no reason to remove a device, even if they are significant."
    )
    all_devices: bool = option(False, help="List every device, not only the 20 slowest.", group="output", edge="shell")


@request("study baseline")
class StudyBaseline(Sources, Json):
    """Learn how the normal devices of a fleet behave, for `vernier study check`.

    Examples:
        vernier study baseline runs/fleet --out baseline.json
        vernier study baseline fleet.csv --columns step_time=time_ms,device=serial --out baseline.json
    """

    out: FilePath = out_file(help="File to write; an existing one is replaced.")


@request("study check")
class StudyCheck(Sources, Json):
    """Accept or reject a new or repaired machine by the baseline of its fleet.

    The study of the machine must be of the same workload. The exit code is 1 if a device is slower than the fleet.

    Examples:
        vernier study check runs/new-node --baseline baseline.json
        vernier study check runs/new-node --baseline baseline.json --json
    """

    baseline: FilePath = file_option(help="File that `vernier study baseline` wrote.")
    matter: Fraction = option(
        "1%", help="Devices that are slower than the fleet by less are accepted, even if that is significant."
    )
    control: FilePath | None = option(
        None,
        help="Study of known good devices of the fleet on the day of this check: what differs between days is removed.",
        metavar="STUDY",
        default="the day makes no difference",
    )


@request("study merge")
class StudyMerge(Json):
    """Join the studies of several machines into one; the sources are not changed.

    Examples:
        vernier study merge runs/node1 runs/node2 --out runs/fleet
        vernier study merge studies/* --out runs/fleet
    """

    sources: tuple[FilePath, ...] = argument(
        help="Study directories of the same workload.", metavar="DIR...", repeats=True
    )
    out: FilePath = out_folder(help="Directory to create.")


@request("study design")
class StudyDesign(Columns, Json):
    """Predict what a study could find before it is measured: its power, and the fewest repeats that are enough.

    Simulated fleets with one slow device are analyzed as `study analyze` does it; the power is the fraction of them in
    which that device is significantly slow. 95 % is enough.

    Examples:
        vernier study design --devices 64 --repeats 3 --find 3%
        vernier study design --devices 64 --find 2% --pilot runs/STUDY
    """

    devices: int = option(64, help="Devices to measure; with fewer than 3 no device can be found slow.", low=3)
    repeats: int = option(
        3, help="Repeats per device; without a second one a disturbed repeat cannot be detected.", low=2
    )
    find: Fraction = option("3%", help="How much slower the device is that the study should find.", above=0)
    corruption: float | None = option(
        None,
        help="Rate of corruptions per device-hour that `--workload exact` should exclude with 95 %.",
        above=0,
        metavar="RATE",
    )
    pilot: FilePath | None = option(
        None,
        help="A study of some of the devices, from which spread and noise are taken.",
        metavar="CSV|DIR",
    )
    spread: Fraction | None = option(
        None, help="How much normal devices differ (standard deviation).", default="that of the pilot, or 0.6%"
    )
    noise: Fraction | None = option(
        None, help="How much repeats of one device differ.", default="that of the pilot, or 0.8%"
    )
    repeat_time: Duration = option(
        "60s", help="Duration of a repeat, with its pause.", above=0, names=("--repeat-seconds",), bare="s"
    )
    per_host: int = option(
        4, help="Devices per host; they are measured one after the other, the hosts at the same time.", low=1
    )
    disturbed: Fraction = option(
        "3%", help="Fraction of repeats that something else slows down, by 20 % on average.", advanced=True
    )
    fleets: int | None = option(
        None, help="Number of simulated fleets.", default="1000, fewer for large ones", low=1, advanced=True
    )
    seed: int = option(0, help="Seed of the simulated fleets.", low=0, advanced=True)
