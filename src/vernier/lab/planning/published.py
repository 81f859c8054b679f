"""What published systems reach of the speeds that `plan` predicts for them.

`benchmarks/plan_accuracy.py` computes these numbers from published tables, and shows the errors on systems that had no
part in them; a test keeps them equal. docs/results/scaling.md lists them.
"""

from vernier.frozen import frozen

LEAST_BATCH = 16
"""The smallest batch per device in any published table."""
_REDUCED = ("mixed", "bf16", "fp16")


@frozen
class Shares:
    """Published speeds over predicted ones: a typical one, and the range that covers 90 % of them."""

    low: float = 1.0
    typical: float = 1.0
    high: float = 1.0


FULL_PRECISION = Shares(low=0.884035, typical=0.973258, high=1.011478)
REDUCED_PRECISION = Shares(low=0.787729, typical=0.934676, high=1.053117)
ANY_PRECISION = Shares(low=0.824755, typical=0.950654, high=1.053117)
SEVERAL_HOSTS = Shares(low=0.523298, typical=0.788304, high=1.0)


def published_shares(hosts: int, devices: int, precision: str | None) -> Shares:
    """How published speeds compare with predicted ones. `precision` None: not known."""
    if devices == 1:
        return Shares()
    if hosts > 1:
        return SEVERAL_HOSTS
    if precision is None:
        return ANY_PRECISION
    return REDUCED_PRECISION if precision in _REDUCED else FULL_PRECISION
