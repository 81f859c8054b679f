"""Recipes of the five systems and of submissions to MLPerf: a TOML file per source, with the settings of recipe files.

Each module names the recipes of the file beside it; `recipes` finds them through entry points.
"""

from vernier.recipes.files import read_recipes

__all__ = ["read_recipes"]
