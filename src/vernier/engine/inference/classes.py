"""Which output of a model stands for which class of the data: matched by name, or by number where that is all there is.

Reading names and labels is up to the sources, loading a model up to `trained`.
"""

from typing import Literal

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import given, use

SHOWN = 5
How = Literal["name", "order", "subset", "number"]


@frozen
class ClassMatch:
    """The output of a model for each class of the data.

    `how`: the same names in the same order, in another order, a subset of the model's names, or by number alone.
    """

    how: How
    outputs: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def in_order(self) -> bool:
        """Whether class i of the data is output i of as many."""
        return self.how in ("name", "number")


def match_classes(
    model: tuple[str, ...], data: tuple[str, ...], *, named: bool = True, by_number: bool = False, metric: str = "top1"
) -> ClassMatch:
    """Match the classes of the data with the model's. Raises ConfigError where they are different ones.

    Not `named`: the model's classes are only numbers, as many as it has outputs. `by_number`: ignore the names.
    """
    if by_number or not named:
        return _match_numbers(model, data, named=named, metric=metric)
    if model == data:
        return ClassMatch(how="name", outputs=tuple(range(len(data))))
    outputs = {name: output for output, name in enumerate(model)}
    if not set(data) <= set(model) or len(outputs) < len(model) or len(set(data)) < len(data):
        raise ConfigError(_explain_difference(model, data))
    matched = tuple(outputs[name] for name in data)
    if len(data) < len(model):
        return ClassMatch(how="subset", outputs=matched, notes=(_describe_subset(len(model), len(data), metric),))
    note = (
        f"the data has the model's {len(model):,} classes in another order "
        f"({_list(data)} instead of {_list(model)}); they were matched by name"
    )
    return ClassMatch(how="order", outputs=matched, notes=(note,))


def _match_numbers(model: tuple[str, ...], data: tuple[str, ...], *, named: bool, metric: str) -> ClassMatch:
    numbers = tuple(int(name) if name.isascii() and name.isdecimal() else -1 for name in data)
    positions = len(set(numbers)) == len(data) and min(numbers) >= 0 and max(numbers) < len(model)
    if not named and positions and len(data) < len(model):
        notes = (
            f"classes taken by number: the weights have no class names, so the class called {data[-1]} is output "
            f"{numbers[-1]}, counted from 0",
            _describe_subset(len(model), len(data), metric),
        )
        return ClassMatch(how="subset", outputs=numbers, notes=notes)
    if len(model) != len(data):
        counts = f"The model has {len(model):,} classes, the data has {len(data):,} ({_list(data)})"
        if named:
            raise ConfigError(
                f"{counts}: too few or too many for {given('classes_by_number', True)}. Without it, names are matched."
            )
        raise ConfigError(
            f"{counts}, and the weights have no class names to match by. Use data with the same classes, or give the "
            f"weights names: {use('classes', slot='FILE')} with one per line."
        )
    reason = given("classes_by_number", True) if named else "the weights have no class names"
    note = f"classes taken by number ({reason}): {data[0]} is output 0, {data[-1]} is output {len(data) - 1}"
    return ClassMatch(how="number", outputs=tuple(range(len(data))), notes=(note,))


def _describe_subset(model: int, data: int, metric: str) -> str:
    """What a result on some of the classes is about: a classifier may take an image for any class it knows."""
    head = f"{data:,} of the model's {model:,} classes are in this data"
    if metric == "top1":
        return f"{head}; top-1 is over all {model:,} outputs"
    return f"{head}; {metric} is over those, objects of the other classes are not counted"


def _explain_difference(model: tuple[str, ...], data: tuple[str, ...]) -> str:
    if len(model) == len(data):
        pairs = [f"{i}: {a} | {b}" for i, (a, b) in enumerate(zip(model, data, strict=True)) if a != b]
        return (
            f"The data's {len(data):,} classes have other names than the model's. The first differences, "
            f"model | data: {_list(pairs)}. Use data with the model's class names, or take class i of the data for "
            f"output i of the model: {use('classes_by_number', True)}."
        )
    unknown = [name for name in data if name not in set(model)] or list(data)
    return (
        f"The model has {len(model):,} classes ({_list(model)}), the data has {len(data):,}, of which the model does "
        f"not know {len(unknown):,}: {_list(unknown)}. Use data with the model's class names, or with some of them."
    )


def _list(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")
