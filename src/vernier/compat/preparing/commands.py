"""The commands of `vernier data`, as the core finds them: the entry point `preparing` of `vernier.commands`."""

from vernier.requests.registry import CommandSet

_HERE = "vernier.compat.preparing"
_ACTIONS = ("make", "prepare", "verify", "inspect", "get")
COMMANDS = CommandSet(
    commands={
        f"data {each}": (f"{_HERE}.requests:{each.capitalize()}Data", f"{_HERE}.cli:{each}") for each in _ACTIONS
    },
    functions={f"data_{each}": f"{_HERE}.api" for each in _ACTIONS},
    groups={"data": "Make, prepare, verify, inspect or fetch data sets."},
    sections={"More": ("data",)},
)
