"""Learning-rate curves of every built-in recipe, as files. `python -m tests.optim.golden` writes them anew.

A changed file is a changed recipe: look at the difference before committing it.
"""

import json
import sys
from pathlib import Path
from typing import Any

from vernier import recipes
from vernier.config import Config, derive
from vernier.optim.schedules import learning_rate

FOLDER = Path(__file__).parent / "golden"


def curve(name: str) -> dict[str, Any]:
    """The rate at the first and last step of the first epochs, around every boundary, half-way and at the end."""
    recipe = recipes.get(name)
    derived = derive(Config(recipe=recipe), train_samples=recipes.train_images(recipe))
    schedule, per = recipe.schedule, derived.steps_per_epoch
    warmup = round(schedule.warmup_epochs)
    epochs = {
        0,
        1,
        2,
        *range(warmup - 1, warmup + 2),
        *(round(m) for m in schedule.milestones),
        round(schedule.epochs / 2),
    }
    ends = {step for e in epochs for step in (e * per - 1, e * per, (e + 1) * per - 1)}
    steps = sorted(s for s in {0, 1, *ends, derived.total_steps - 1} if 0 <= s < derived.total_steps)
    return {
        "steps_per_epoch": per,
        "total_steps": derived.total_steps,
        "rates": {str(s): float(f"{learning_rate(s, schedule, derived):.9g}") for s in steps},
    }


def rates(name: str, *epochs: int) -> list[float]:
    """The rate at the first step of each epoch."""
    recorded = curve(name)
    return [recorded["rates"][str(e * recorded["steps_per_epoch"])] for e in epochs]


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for recipe_name in recipes.names():
        (FOLDER / f"{recipe_name}.json").write_text(json.dumps(curve(recipe_name), indent=1) + "\n")
    sys.stdout.write(f"{len(recipes.names())} curves in {FOLDER}\n")
