"""What a training step costs against its arithmetic: image size, batch and depth, in fp32 on the CPU.

Every case is a process that takes steps on one batch in memory; all take turns, in a random order every round. Prints
for each case the time per step, its FLOPs (three times those of the forward pass, a multiply-add is two) and the
FLOP/s, and these relative to the case of the same series that is marked: 1.00 is proportional to the FLOPs.

    python benchmarks/step_cost.py size|batch|depth [--rounds 7] [--convolution torch|winograd]
"""

import argparse
import random
import statistics
import sys

from training_step import Arm, answer_requests, vernier_step

from vernier.api.starting import limit_spinning
from vernier.clock import now_s, utc_stamp
from vernier.config import Machine, Model
from vernier.models.cost import cost_of

Case = tuple[str, int, int]
"""Network, batch, image size."""
SERIES: dict[str, list[Case]] = {
    "size": [("resnet50", 16, px) for px in (64, 96, 128, 160, 192, 224, 256, 288)],
    "batch": [("resnet50", count, 224) for count in (1, 2, 4, 8, 16, 32, 64)],
    "depth": [(f"resnet{depth}", 8, 224) for depth in (18, 34, 50, 101, 152)],
}
REFERENCE: dict[str, Case] = {
    "size": ("resnet50", 16, 224),
    "batch": ("resnet50", 16, 224),
    "depth": ("resnet50", 8, 224),
}


def gflop_per_step(case: Case) -> float:
    network, count, px = case
    return 3 * 2 * count * cost_of(Model(name=network), px=px, classes=1000, channels=3).gmac


def serve(case: Case, convolution: str) -> None:
    began_s = now_s()
    limit_spinning()
    network, count, px = case
    machine = Machine(convolution=convolution, cache_share=0.0)
    answer_requests(vernier_step(network, count, px, machine), began_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("series", choices=list(SERIES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--convolution", default="torch", choices=["torch", "winograd"])
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cases = SERIES[options.series]
    if options.serve is not None:
        serve(cases[options.serve], options.convolution)
        return
    own = [sys.executable, __file__, options.series, "--convolution", options.convolution, "--serve"]
    arms: list[Arm] = []
    try:
        for index in range(len(cases)):
            arms.append(Arm([*own, str(index)]))
        for _ in range(options.rounds):
            for arm in random.sample(arms, len(arms)):
                arm.take(1)
    finally:
        for arm in arms:
            arm.close()
    print(
        f"{utc_stamp()}  {options.series}, machine.convolution={options.convolution}, n = {options.rounds} steps each"
    )
    at = cases.index(REFERENCE[options.series])
    rates = [
        [gflop_per_step(case) / block.seconds for block in arm.blocks] for case, arm in zip(cases, arms, strict=True)
    ]
    for case, arm, rate in zip(cases, arms, rates, strict=True):
        relative = sorted(ours / reference for ours, reference in zip(rate, rates[at], strict=True))
        network, count, px = case
        print(
            f"{network:10s} batch {count:3d} {px:3d} px  {gflop_per_step(case):8.1f} GFLOP  {arm.median_s():7.3f} s  "
            f"{statistics.median(rate):6.1f} GFLOP/s  {statistics.median(relative):.2f} "
            f"({relative[0]:.2f} to {relative[-1]:.2f})" + ("  reference" if case == cases[at] else "")
        )


if __name__ == "__main__":
    main()
