"""`vernier bench`: how fast training, inference, scaling and loading are on this machine, with intervals.

A module per command; `options` has the flags they share and builds the request, `running` runs it and prints the
result. Everything is measured in `vernier.measure.bench` and `vernier.engine.measured`.
"""

from .arm import arm
from .infer import infer
from .loading import data
from .training import scaling, train

COMMANDS = {"train": train, "infer": infer, "scaling": scaling, "data": data, "arm": arm}
