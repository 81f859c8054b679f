"""`vernier recipes` and `vernier models`: list the built-in recipes and networks."""

import sys
from dataclasses import replace
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vernier.cli.flags import JsonFlag, Switch, optional
from vernier.cli.output import print_json, print_rows, say
from vernier.config import to_dict, to_toml
from vernier.errors import EXIT_DONE, ConfigError


def recipes(
    action: Positional[Literal["list", "show"]] = "list",
    name: Annotated[Positional[str | None], arg(metavar="NAME", help_behavior_hint="")] = None,
    /,
    *,
    device_hours: Annotated[str | None, optional("RUN|IMG_PER_S")] = None,
    convert: Switch = False,
    json: JsonFlag = False,
) -> int:
    """List the built-in recipes, or print one as a TOML file to edit: vernier recipes show NAME > mine.toml

    Args:
        action: list all recipes, or show one.
        name: Name of the recipe to show.
        device_hours: Also estimate the hours of each recipe on one device: from a training run measured there, or from
            the images per second at which it trains ResNet-50 at 224 pixels.
        convert: With --device-hours RUN: convert its speed to the networks of the recipes by multiply-accumulates.

    Examples:
        vernier recipes
        vernier recipes shapes-quick > mine.toml
        vernier recipes --device-hours 2500
    """
    from vernier import recipes as book

    if action == "show":
        if name is None:
            raise ConfigError("Which recipe? vernier recipes show NAME; vernier recipes lists them.")
        chosen = book.get(name)
        if json:
            print_json({"notes": book.notes(name), "recipe": to_dict(chosen)})
        else:
            sys.stdout.write(
                "".join(f"# {line}".rstrip() + "\n" for line in book.notes(name).splitlines()) + "\n" + to_toml(chosen)
            )
        return EXIT_DONE
    rows = book.table()
    if device_hours is not None:
        from vernier.measure.planning.conversion import conversion_error
        from vernier.measure.planning.estimate import device_hours as estimate
        from vernier.measure.planning.workload import speed_of

        speed, basis = speed_of(device_hours, convert=convert)
        built_in = [book.get(n) for n in book.BUILT_IN]
        hours = [float(f"{estimate(recipe, book.train_images(recipe), speed):.2g}") for recipe in built_in]
        rows = [replace(row, estimated_device_hours=h) for row, h in zip(rows, hours, strict=True)]
        say(
            f"Device hours are an ESTIMATE, {basis.text}: {conversion_error()}. Training steps only, no evaluation, no "
            "scaling losses."
        )
        if basis.ran is not None:
            say(f"what ran: {basis.ran.line()}")
    print_rows(rows, json)
    return EXIT_DONE


def models(*, json: JsonFlag = False) -> int:
    """List the networks with their parameters and their cost per image."""
    from vernier.models import describe

    rows = [
        {
            "name": m.name,
            "family": m.family,
            "parameters": m.params,
            "gmac": round(m.gmac, 3),
            "input_px": m.input_px,
            "about": m.summary,
        }
        for m in describe()
    ]
    print_rows(rows, json)
    return EXIT_DONE
