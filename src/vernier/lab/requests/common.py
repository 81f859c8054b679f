"""What options of several commands have in common: their names and their place in the help."""

from functools import partial
from typing import Any

from vernier.requests.declaring import argument, option

BATCH: dict[str, Any] = {"low": 1, "names": ("--batch-size", "--batches", "--device-batch")}
# Functions, as type checkers read fields of requests without keywords from dictionaries only.
batch_option = partial(option, **BATCH)
file_option = partial(option, metavar="FILE")
out_file = partial(file_option, names=("-o", "--output"))
out_folder = partial(out_file, metavar="DIR")
data_option = partial(option, names=("--dataset",), group="data")
model_option = partial(option, metavar="MODEL", sets="model.name", names=("--arch",), group="model")
recipe_argument = partial(argument, metavar="[RECIPE]")
measuring = partial(option, group="measuring")
measuring_advanced = partial(measuring, advanced=True)
machine_advanced = partial(option, group="machine", advanced=True)
