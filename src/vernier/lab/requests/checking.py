"""The request of `check`."""

from vernier.requests.declaring import request
from vernier.requests.training import Train


@request("check")
class Check(Train):
    """Check that a run can be repeated and resumed exactly: train a few steps three times and compare every bit.

    Takes the options of `train`. Four steps are trained twice, and once with a restart after two. Losses, weights,
    optimizer state and averages must be bit-identical; otherwise the output names what differs and the exit code is 1.
    Nothing is kept. It is meant for recipes with code of your own, and works for any.

    Examples:
        vernier check shapes-quick
        vernier check mine.toml --loss mylosses:focal --data mydata:Flowers
    """
