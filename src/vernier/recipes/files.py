"""Reads recipes from TOML files: rows with the names that files of users have, which may change an earlier row.

The files of the core are in this folder, one per source; those of other systems are in `compat.recipes`.
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from vernier.config import Recipe, from_dict

RecipeGroup = Mapping[str, Sequence[Callable[[], Recipe]]]
"""What an entry point of `vernier.recipes` names: headings of the list of recipes, and the functions under each."""


def read_recipes(module: str | Path) -> RecipeGroup:
    """The recipes of the TOML file that has the name of a module and is next to it, by the heading in the file.

    A row changes its `base`, an earlier row, or the defaults; a row without notes is only a base. A published result
    has what its `system` says.
    """
    tree = tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
    recipes_by_name, makers = dict[str, Recipe](), []
    for row in tree["recipes"]:
        base, notes = recipes_by_name.get(row.pop("base", "")), row.pop("notes", "")
        # Never those of the base: a result belongs to exactly one set of settings.
        results = [
            {**tree.get("systems", {}).get(each.pop("system", ""), {}), **each} for each in row.get("published", ())
        ]
        recipe = recipes_by_name[row["name"]] = from_dict(Recipe, {**row, "published": results}, base=base)
        if notes:
            make = partial(recipes_by_name.__getitem__, recipe.name)
            make.__doc__ = notes
            makers.append(make)
    return {tree["heading"]: tuple(makers)}
