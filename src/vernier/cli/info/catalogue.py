"""`vernier recipes` and `vernier models`: list the built-in recipes and networks."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional

from vernier.cli.flags import JsonFlag, Switch, optional
from vernier.cli.output import print_json, print_result, print_rows, say, show
from vernier.config import to_dict, to_toml
from vernier.errors import EXIT_DONE, ConfigError
from vernier.records.codec import encode

if TYPE_CHECKING:
    from vernier.models.catalogue import ModelInfo
    from vernier.recipes import RecipeRow


def recipes(
    words: Annotated[Positional[tuple[str, ...]], optional("[RECIPE]")] = (),
    /,
    *,
    device_hours: Annotated[str | None, optional("RUN|IMG_PER_S")] = None,
    convert: Switch = False,
    speeds: Switch = False,
    json: JsonFlag = False,
) -> int:
    """List the built-in recipes, or print one as a TOML file to edit.

    Args:
        words: Recipe (or network) to print; `show NAME` does the same. Without a name, all recipes are listed.
        device_hours: Also estimate the hours of each recipe, or of the one named, on one device: from a training run
            measured there, or from the images per second at which it trains ResNet-50 at 224 pixels.
        convert: With --device-hours RUN: convert its speed to the networks of the recipes by multiply-accumulates.
        speeds: List published images per second, latencies and hours to train instead: of one recipe, or all of them.

    Examples:
        vernier recipes
        vernier recipes shapes-quick > mine.toml
        vernier recipes nvidia-resnet50-90e --speeds
        vernier recipes --device-hours 2500
    """
    from vernier import recipes as book

    name = None if words in ((), ("list",)) else _one_name(words)
    if speeds and device_hours is not None:
        raise ConfigError("--speeds lists what was published, --device-hours estimates: give one of them.")
    if speeds:
        return _show_speeds(name, json)
    if convert and device_hours is None:
        raise ConfigError("--convert goes with --device-hours RUN.")
    if name is not None and device_hours is None:
        return _show_recipe(name, json)
    rows = book.table()
    if name is not None:
        book.get(name)
        rows = [row for row in rows if row.name == name]
    if device_hours is not None:
        rows = _with_hours(rows, device_hours, convert)
    if json:
        print_json([encode(row) | _published_speeds(row.name) for row in rows])
        return EXIT_DONE
    from vernier.measure.planning.table import with_range

    shown = []
    for row in rows:
        cells = {
            "recipe": row.name,
            "data": row.data,
            "published": book.result_text(book.get(row.name)),
            "epochs": row.epochs,
            "model": row.model,
            "global_batch": row.global_batch,
            "source": row.source,
        }
        if row.estimated_device_hours is not None and row.estimated_device_hours_range is not None:
            cells["device_hours"] = with_range(row.estimated_device_hours, row.estimated_device_hours_range)
        shown.append(cells)
    print_rows(
        shown,
        False,
        droppable=("source", "global_batch", "model", "epochs", "data"),
        instead="vernier recipes NAME",
    )
    return EXIT_DONE


def _with_hours(rows: "list[RecipeRow]", run_or_rate: str, convert: bool) -> "list[RecipeRow]":
    """Add the estimated hours on one device, and say what they are based on."""
    from vernier import recipes as book
    from vernier.measure.planning.conversion import conversion_error
    from vernier.measure.planning.workload import hours_and_range, speed_of

    speed, basis = speed_of(run_or_rate, convert=convert)
    say(
        f"Device hours are an ESTIMATE, {basis.text}: {conversion_error()}. Training steps only, no evaluation, no "
        "scaling losses."
    )
    if basis.ran is not None:
        say(f"what ran: {basis.ran.line()}")
    estimated = []
    for row in rows:
        recipe = book.get(row.name)
        hours, (low, high) = hours_and_range(recipe, book.train_images(recipe), speed, basis)
        estimated.append(replace(row, estimated_device_hours=hours, estimated_device_hours_range=(low, high)))
    return estimated


def _one_name(words: tuple[str, ...]) -> str:
    names = words[1:] if words[0] == "show" else words
    if len(names) != 1:
        raise ConfigError("Which recipe? vernier recipes NAME prints one; vernier recipes lists them.")
    return names[0]


def _published_speeds(name: str | None) -> dict[str, Any]:
    """Published rates and times of a recipe, or all of them, as JSON values."""
    from vernier.measure.published.tables import figures_of, rates, times

    own_rates, own_times = (rates(), times()) if name is None else figures_of(name)
    return {"speeds": encode(own_rates), "times": encode(own_times)}


def _show_speeds(name: str | None, json: bool) -> int:
    """Two tables: images per second, and hours to train."""
    from vernier import recipes as book

    if name is not None:
        book.get(name)
    figures = _published_speeds(name)
    if json:
        print_json(figures)
        return EXIT_DONE
    if not figures["speeds"] and not figures["times"]:
        raise ConfigError(f"No speed or training time was published for {name}. vernier recipes --speeds lists them.")
    if figures["speeds"]:
        print_rows([_rate_cells(rate) for rate in figures["speeds"]], False, droppable=("source", "system", "note"))
    if figures["times"]:
        print_rows([_time_cells(time) for time in figures["times"]], False, droppable=("source", "system", "note"))
    return EXIT_DONE


def _rate_cells(rate: dict[str, Any]) -> dict[str, Any]:
    latencies = [f"{rate[key]:g}" for key in ("latency_ms", "latency_ms_p95", "latency_ms_p99") if key in rate]
    return {
        "what": rate["what"],
        "model": rate["model"],
        **_device_cells(rate),
        "batch_per_device": rate["device_batch"],
        "img/s": rate["images_per_s"],
        "per_device": round(rate["images_per_s"] / rate["devices"], 1),
        "latency_ms mean/p95/p99": "/".join(latencies),
        **_source_cells(rate),
    }


def _time_cells(time: dict[str, Any]) -> dict[str, Any]:
    epochs = "not stated" if time["epochs"] is None else f"{time['epochs']:g}"
    return {
        "model": time["model"],
        "epochs": f"until {time['until']}" if time["until"] else epochs,
        **_device_cells(time),
        "global_batch": time["global_batch"] or "",
        "hours": f"{'about ' if time['approximate'] else ''}{time['hours']:.3g}",
        **_source_cells(time),
    }


def _device_cells(figure: dict[str, Any]) -> dict[str, Any]:
    precision = figure.get("arithmetic") or figure["precision"] or "not stated"
    return {"device": figure["device"], "devices": figure["devices"], "precision": precision}


def _source_cells(figure: dict[str, Any]) -> dict[str, Any]:
    return {"system": figure["system"], "note": figure["note"], "source": figure["source"]["citation"]}


def _show_recipe(name: str, json: bool) -> int:
    from vernier import recipes as book

    chosen = book.load(name).recipe
    notes = book.notes(name) if name in book.BUILT_IN else chosen.about
    figures = _published_speeds(name)
    if json:
        print_json({"notes": notes, "recipe": to_dict(chosen), **figures})
    else:
        if figures["speeds"] or figures["times"]:
            notes += f"\nPublished speeds and training times: vernier recipes {name} --speeds"
        show(*(f"# {line}".rstrip() for line in notes.splitlines()), "", *to_toml(chosen).splitlines())
    return EXIT_DONE


def models(
    name: Annotated[Positional[str | None], optional("[NETWORK]")] = None,
    /,
    *,
    json: JsonFlag = False,
) -> int:
    """List the networks with their parameters and their cost per image, or show one.

    Args:
        name: Network to show, with the recipes that train it.

    Examples:
        vernier models
        vernier models resnet50
    """
    from vernier.models import describe

    if name is not None:
        return _show_model(name, json)
    if json:
        print_json([_model_facts(m) for m in describe()])
        return EXIT_DONE
    rows = [
        {
            "network": m.name,
            "parameters": f"{m.params / 1e6:.1f} M" if m.params >= 1e6 else f"{m.params / 1e3:.0f} k",
            "GMAC": f"{m.gmac:.3g}",
            "px": m.input_px,
            "best_published": _published_on(m.name),
            "about": m.summary,
        }
        for m in describe()
    ]
    print_rows(
        rows,
        False,
        droppable=("about", "px", "GMAC"),
        wrapped="about",
        right=("parameters", "GMAC"),
        instead="vernier models NAME",
    )
    return EXIT_DONE


def _published_on(network: str) -> str:
    """The best published result of a network's recipes, and on which data."""
    from vernier import recipes as book

    best = book.best_published(network)
    return "" if best is None else f"{best[0]} {book.result_text(best[1])}"


def _model_facts(m: "ModelInfo") -> dict[str, Any]:
    return {
        "name": m.name,
        "family": m.family,
        "parameters": m.params,
        "gmac": round(m.gmac, 3),
        "input_px": m.input_px,
        "about": m.summary,
    }


def _show_model(name: str, json: bool) -> int:
    from vernier import recipes as book
    from vernier.models import info, is_detector

    m = info(name)
    trained_by = [recipe for recipe in book.BUILT_IN if book.get(recipe).model.name == name]
    facts = {**_model_facts(m), "classes": m.classes, "recipes": trained_by}
    best = book.best_published(name)
    lines = [
        f"{m.name}: {m.summary}",
        f"parameters {m.params:,} with {m.classes:,} classes",
        f"cost       {m.gmac:.3f} GMAC (multiply-accumulates) per image of {m.input_px} px, forward",
        *([f"published  {best[0]} {book.result_text(best[1])} ({best[1].name})"] if best else []),
        f"recipes    {', '.join(trained_by) or 'none built in'}",
        f"try        vernier train {m.name} --data {'boxes' if is_detector(name) else 'photos'}",
        f"           vernier bench infer {m.name}",
    ]
    print_result(facts, json, lambda _: lines)
    return EXIT_DONE
