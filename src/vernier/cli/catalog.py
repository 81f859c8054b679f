"""Output of `vernier recipes` and `models`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vernier import recipes as book
from vernier.api.catalog import model_rows
from vernier.config import Recipe, to_dict, to_toml
from vernier.errors import EXIT_DONE, ConfigError
from vernier.measure.published import published_rows
from vernier.models import info, is_detector
from vernier.records.codec import encode
from vernier.references import command
from vernier.requests.catalog import Models, Recipes

from .output import Terminal

if TYPE_CHECKING:
    from vernier.api.catalog import ModelRow
    from vernier.measure.published import PublishedRow
    from vernier.recipes import RecipeRow


def recipes(request: Recipes, terminal: Terminal) -> int:
    name = None if request.words in ((), ("list",)) else _one_name(request.words)
    if request.speeds:
        return _show_speeds(name, request.json, terminal)
    if name is not None:
        return _show_recipe(name, request.json, terminal)
    rows = book.table()
    if request.json:
        terminal.print_json([encode(row) | _as_json(published_rows(row.name)) for row in rows])
    else:
        terminal.print_rows(
            [_recipe_cells(row) for row in rows],
            droppable=("source", "global_batch", "model", "epochs", "data"),
            instead="vernier recipes NAME",
        )
    return EXIT_DONE


def _one_name(words: tuple[str, ...]) -> str:
    names = words[1:] if words[0] == "show" else words
    if len(names) != 1:
        raise ConfigError(f"Which recipe? {command('recipes', 'NAME')} prints one; {command('recipes')} lists them.")
    return names[0]


def _recipe_cells(row: "RecipeRow") -> "dict[str, object]":
    return {
        "recipe": row.name,
        "data": row.data,
        "published": _result_text(book.get(row.name)),
        "epochs": row.epochs,
        "model": row.model,
        "global_batch": row.global_batch,
        "source": row.source,
    }


def _result_text(recipe: Recipe) -> str:
    """Write the first published result so that it fits a table: 77.23 ± 0.04 %, 73.8 % TTA, AP 0.268 ± 0.001."""
    if not recipe.published:
        return ""
    first = recipe.published[0]
    if first.metric == "AP":
        return f"AP {first.mean:.4g}" if first.sd is None else f"AP {first.mean:.3f} ± {first.sd:.3f}"
    spread = "" if first.sd is None else f" ± {first.sd:g}"
    return f"{first.mean:g}{spread} %{' TTA' if recipe.eval.flip_tta else ''}"


def _best_published(network: str) -> tuple[str, Recipe] | None:
    """Give the data set and the recipe with the best published result of a network; None where there is none."""
    rows = [row for row in book.table() if row.model == network and row.published]
    best = max(rows, key=lambda row: row.published[0].mean, default=None)
    return None if best is None else (best.data, book.get(best.name))


def _as_json(published: "Sequence[PublishedRow]") -> dict[str, object]:
    return {kind: [encode(row.record) for row in published if row.kind == kind] for kind in ("speeds", "times")}


def _show_speeds(name: str | None, json: bool, terminal: Terminal) -> int:
    """Two tables: images per second, and hours to train."""
    if name is not None:
        book.get(name)
    published = published_rows(name)
    if json:
        terminal.print_json(_as_json(published))
        return EXIT_DONE
    if not published:
        every = command("recipes", speeds=True)
        raise ConfigError(f"No speed or training time was published for {name}. {every} lists them.")
    for kind in ("speeds", "times"):
        if rows := [row.cells for row in published if row.kind == kind]:
            terminal.print_rows(rows, droppable=("source", "system", "note"))
    return EXIT_DONE


def _show_recipe(name: str, json: bool, terminal: Terminal) -> int:
    chosen = book.load(name).recipe
    notes = book.notes(name) if name in book.names() else chosen.about
    published = published_rows(name)
    if json:
        terminal.print_json({"notes": notes, "recipe": to_dict(chosen), **_as_json(published)})
        return EXIT_DONE
    if published:
        notes += f"\nPublished speeds and training times: {command('recipes', name, speeds=True)}"
    # The notes as comments, so that the whole output is a recipe file.
    terminal.show(*(f"# {line}".rstrip() for line in notes.splitlines()), "", *to_toml(chosen).splitlines())
    return EXIT_DONE


def models(request: Models, terminal: Terminal) -> int:
    rows = model_rows(request, terminal)
    if [row.name for row in rows] == [request.pattern]:  # no pattern, since names have no wildcards
        return _show_model(rows[0], request.json, terminal)
    if request.json:
        terminal.print_json(list(rows))
    elif not rows:
        terminal.warn(f"No model matches {request.pattern!r}. {command('models')} lists them.")
    else:
        terminal.print_rows(
            [
                {
                    "model": row.name,
                    "parameters": _count_text(row.parameters),
                    "GMAC": f"{row.gmac:.3g}",
                    "px": row.input_px,
                    "best_published": _published_on(row.name),
                    "about": row.about,
                }
                for row in rows
            ],
            droppable=("about", "px", "GMAC"),
            wrapped="about",
            right=("parameters", "GMAC"),
            instead="vernier models NAME",
        )
    return EXIT_DONE


def _count_text(parameters: int) -> str:
    return f"{parameters / 1e6:.1f} M" if parameters >= 1e6 else f"{parameters / 1e3:.0f} k"


def _published_on(model: str) -> str:
    """The best published result of a model's recipes, and on which data."""
    best = _best_published(model)
    return "" if best is None else f"{best[0]} {_result_text(best[1])}"


def _show_model(row: "ModelRow", json: bool, terminal: Terminal) -> int:
    name, model = row.name, info(row.name)
    trained_by = [recipe for recipe in book.names() if book.get(recipe).model.name == name]
    best = _best_published(name)
    lines = [
        f"{name}: {model.summary}",
        f"parameters {model.params:,} with {model.classes:,} classes",
        f"cost       {model.gmac:.3f} GMAC (multiply-accumulates) per image of {model.input_px} px, forward",
        *([f"published  {best[0]} {_result_text(best[1])} ({best[1].name})"] if best else []),
        f"recipes    {', '.join(trained_by) or 'none built in'}",
        f"try        {command('train', name, data='boxes' if is_detector(name) else 'photos')}",
        f"           {command('bench infer', name)}",
    ]
    whole = {**encode(row), "classes": model.classes, "recipes": trained_by}
    terminal.print_result(whole, json, lambda _: lines)
    return EXIT_DONE
