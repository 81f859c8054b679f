"""The command line: one function a command, which reads its flags, calls the code that does the work, and prints.

torch is imported only by commands that need it, inside the function, so that `--help` answers at once.
"""

import json as jsonlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, UseAppendAction, arg

from vernier.config import Config, override, override_from_text, to_toml
from vernier.errors import EXIT_DONE, EXIT_FAILED, EXIT_STOPPED, EXIT_USAGE, ConfigError, RunFailed

if TYPE_CHECKING:
    from vernier.engine.load import Trained
    from vernier.engine.train import Outcome

WELCOME = """\
Vernier trains, evaluates, benchmarks and profiles vision models, and reports what it measured.

  vernier train          train the embedded default: rendered shapes, about a minute on two cores
  vernier recipes        what else can be trained
  vernier doctor         what this machine can do

vernier --help lists every command; vernier COMMAND --help explains one.
"""

DeviceName = Literal["auto", "cpu", "cuda", "hpu", "mps", "xpu"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
Mode = Literal["eager", "compile", "trace"]

Text = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
Whole = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
Number = Annotated[float | None, arg(metavar="X", help_behavior_hint="")]


def _pathlike(metavar: str) -> Any:
    return arg(metavar=metavar, help_behavior_hint="")


DataFlag = Annotated[str | None, _pathlike("NAME|PATH")]
JsonFlag = Annotated[bool, arg(name="json", help="Print one JSON document on standard output and nothing else there.")]
SetFlag = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        name="set",
        metavar="NAME=VALUE",
        help="Change any setting, e.g. optim.lr=0.05. Repeatable.",
        help_behavior_hint="",
    ),
]


EmaFlag = Annotated[FlagCreatePairsOff[bool], arg(help="Averaged weights; the default where there are any.")]
NoEmaFlag = Annotated[FlagCreatePairsOff[bool], arg(help="The raw weights, not the averaged ones.")]
FreezeFlag = Annotated[
    UseAppendAction[tuple[str, ...]],
    arg(
        name="freeze",
        metavar="PREFIX",
        help="Layers that do not learn, e.g. layer1; backbone: train the classifier only. Repeatable.",
        help_behavior_hint="",
    ),
]


def _print_json(value: Any) -> None:
    sys.stdout.write(jsonlib.dumps(value, indent=2) + "\n")


def _averaged(ema: bool, no_ema: bool) -> bool | None:
    """What --ema and --no-ema ask for; None: averaged weights where there are any."""
    if ema and no_ema:
        raise ConfigError("Give --ema or --no-ema, not both.")
    return True if ema else False if no_ema else None


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _apply(config: Config, flags: dict[str, Any], settings: tuple[str, ...]) -> Config:
    """Named flags, then `--set`, over what the recipe says."""
    for path, value in flags.items():
        if value is not None:
            config = override(config, path, value)
    for assignment in settings:
        config = override_from_text(config, assignment)
    return config


def train(
    recipe: Annotated[
        Positional[str | None], arg(metavar="RECIPE", help_behavior_hint="(default: shapes-quick)")
    ] = None,
    /,
    *,
    data: DataFlag = None,
    out: Annotated[str, arg(metavar="DIR")] = "runs",
    device: Annotated[DeviceName | None, _pathlike("auto|cpu|cuda|hpu|mps|xpu")] = None,
    procs: Whole = None,
    precision: Annotated[Precision | None, _pathlike("fp32|tf32|bf16|fp16")] = None,
    allow_slow: bool = False,
    mode: Annotated[Mode | None, _pathlike("eager|compile|trace")] = None,
    model: Text = None,
    global_batch: Whole = None,
    epochs: Number = None,
    lr: Number = None,
    seed: Whole = None,
    weights: Annotated[str | None, _pathlike("FILE")] = None,
    reset_head: bool = False,
    freeze: FreezeFlag = (),
    workers: Whole = None,
    max_bad_images: Annotated[str | None, _pathlike("N|SHARE%")] = None,
    max_steps: Whole = None,
    max_eval_steps: Whole = None,
    train_only: bool = False,
    smoke: bool = False,
    resume: Annotated[str | None, _pathlike("auto|never|PATH")] = None,
    config: Annotated[str | None, _pathlike("FILE")] = None,
    settings: SetFlag = (),
    json: JsonFlag = False,
) -> int:
    """Train a model with a recipe. Without a recipe: the embedded default, about a minute on two cores.

    Run the same command again after an interruption and it goes on where it stopped.

    Args:
        recipe: A built-in recipe (see `vernier recipes`) or a .toml file of your own.
        data: A built-in data set, or a folder with train/ and val/ (one folder per class).
        out: Folder in which the run directory is made, or looked for when resuming.
        device: Where to run.
        procs: Processes, one a device.
        precision: Arithmetic of the network.
        allow_slow: Run a precision this device has no hardware for.
        mode: How the network is executed.
        model: Another network than the recipe's (see `vernier models`).
        global_batch: Images per optimiser step, over all processes.
        epochs: Length of the training; the schedule follows.
        lr: Peak learning rate at the recipe's batch.
        seed: Initial weights, order and augmentation.
        weights: Start from these weights: safetensors or torch file, names as in torchvision, timm, NVIDIA's or Habana's.
        reset_head: Start a new classifier on top of them, for other classes.
        workers: Loader threads per process.
        max_bad_images: How many unreadable images to replace before giving up, e.g. 20 or 0.1% of the set.
        max_steps: Stop after this many steps; the schedule stays.
        max_eval_steps: Evaluate on this many batches only.
        train_only: Do not evaluate.
        smoke: Try the recipe out: two steps of eight rendered 64-pixel images in a narrow network, one evaluation.
        resume: auto: the newest run of this recipe in --out; never: always a new run; or a run directory.
        config: A run's config.json, to repeat it.
    """
    from vernier import recipes as book
    from vernier.report.console import ConsoleObserver

    flags = {
        "data.source": data, "machine.device": device, "machine.procs": procs, "machine.precision": precision, "machine.mode": mode,
        "machine.allow_slow": allow_slow or None,
        "model.name": model, "global_batch": global_batch, "schedule.epochs": epochs, "optim.lr": lr, "seed": seed,
        "machine.workers": workers, "data.max_bad_images": max_bad_images,
        "limits.max_steps": max_steps, "limits.max_eval_steps": max_eval_steps,
        "eval.every_epochs": 0 if train_only else None, "model.weights": weights, "model.reset_head": reset_head or None,
        "model.freeze": freeze or None,
    }  # fmt: skip
    start = _starting_config(recipe, config, resume)
    chosen = _apply(book.smoke(start) if smoke else start, flags, settings)
    with ConsoleObserver() as console:
        from vernier.engine import resume as resuming
        from vernier.engine.train import train as run_training

        point = resuming.choose(chosen, Path(out), resume, console.warn)
        if point is not None and resume is None:
            console.say(f"Found {point.run.path}, cut short: going on with it (--resume never starts a new run).")
        outcome = run_training(chosen, Path(out), point, [console], book.reference(chosen.recipe))
    return _ended(outcome, json)


def _ended(outcome: "Outcome", json: bool) -> int:
    from vernier.report.console import closing_lines

    if json:
        _print_json({"run": str(outcome.run.path), "status": outcome.status, **outcome.summary})
    else:
        sys.stdout.write("\n".join(closing_lines(outcome.summary, str(outcome.run.path), outcome.status)) + "\n")
    return EXIT_DONE if outcome.status == "finished" else EXIT_STOPPED


def _starting_config(recipe: str | None, config: str | None, resume: str | None) -> Config:
    from vernier import recipes as book

    if recipe is not None and config is not None:
        raise ConfigError(f"Give a recipe ({recipe}) or --config ({config}), not both.")
    if recipe is None and config is None and resume not in (None, "auto", "never"):
        from vernier.engine.resume import run_config, run_of
        from vernier.store import RunDir

        return run_config(RunDir.open(run_of(Path(resume))))
    return book.load(config or recipe or book.DEFAULT)


def evaluate(
    path: Annotated[Positional[str | None], arg(metavar="RUN|CHECKPOINT", help_behavior_hint="")] = None,
    /,
    *,
    model: Text = None,
    weights: Annotated[str | None, _pathlike("FILE")] = None,
    data: DataFlag = None,
    which: Annotated[str, arg(metavar="latest|best|STEP")] = "latest",
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    flip_tta: bool = False,
    max_eval_steps: Whole = None,
    workers: Whole = None,
    settings: SetFlag = (),
    json: JsonFlag = False,
) -> int:
    """Evaluate a run (finished, running or interrupted), a checkpoint directory, or anybody's weights: every image once.

    For weights of others: vernier eval --model resnet50 --weights FILE --data PATH

    Args:
        path: A run directory, or one of its checkpoints.
        model: With --weights: which network they are of (see `vernier models`).
        weights: A file of weights instead of a run: safetensors or torch, never run as code.
        data: Another data set or folder than the run's own.
        which: Which checkpoint of a run.
        flip_tta: Test-time augmentation: add the scores of the mirrored image. Said in the result.
        max_eval_steps: Evaluate on this many batches only.
        workers: Loader threads.
    """
    from vernier.report.console import ConsoleObserver

    averaged = _averaged(ema, no_ema)
    if (path is None) == (weights is None):
        raise ConfigError("Say what to evaluate: a run or checkpoint directory, or --model NAME --weights FILE.")
    with ConsoleObserver() as console:
        from vernier.engine.load import evaluate_trained

        flags = {"data.source": data, "machine.workers": workers, "eval.flip_tta": flip_tta or None}
        if weights is None:
            trained = _trained_run(path or "", which, averaged, model, lambda config: _apply(config, flags, settings))
        else:
            trained = _trained_by_others(weights, model, averaged, lambda config: _apply(config, flags, settings))
        result = evaluate_trained(trained, data, max_eval_steps, [console])
    if json:
        _print_json(result)
    else:
        sys.stdout.write(_evaluated(result))
    return EXIT_DONE


def _trained_run(
    path: str, which: str, ema: bool | None, model: str | None, changed: Callable[[Config], Config]
) -> "Trained":
    from vernier.engine.load import load_trained

    if model is not None:
        raise ConfigError("--model goes with --weights FILE; a run knows its own model.")
    trained = load_trained(Path(path), which=which, averaged=ema)
    before, trained.config = trained.config.recipe.model, changed(trained.config)
    if trained.config.recipe.model != before:
        raise ConfigError("A trained model cannot be changed by --set model.*; data, eval and machine can.")
    return trained


def _trained_by_others(
    weights: str, model: str | None, ema: bool | None, changed: Callable[[Config], Config]
) -> "Trained":
    from vernier.engine.load import foreign_config, load_foreign

    if model is None:
        raise ConfigError("--weights needs --model NAME (see `vernier models`): a file of weights does not say.")
    return load_foreign(Path(weights), changed(foreign_config(model)), averaged=ema)


def _evaluated(result: dict[str, Any]) -> str:
    part = "" if result["exact"] else "  PART of the set"
    tta = "  with flip test-time augmentation" if result["flip_tta"] else ""
    step = "" if result["step"] is None else f"weights of step {result['step']:,}, "
    notes = "".join(f"{note}\n" for note in result["notes"])
    return (
        f"top-1 {result['top1']:.2f} %  top-5 {result['top5']:.2f} %  loss {result['loss']:.4f}  on {result['samples']:,} "
        f"images of {result['data']}{part}{tta}\n{'averaged ' if result['averaged'] else ''}{step}{result['weights']}; "
        f"{result['images_per_s_total']:,.0f} img/s\n{notes}"
    )


def export(
    path: Annotated[Positional[str], arg(metavar="RUN|CHECKPOINT")],
    /,
    *,
    format: Literal["safetensors", "torchvision"] = "safetensors",
    out: Annotated[str | None, _pathlike("FILE")] = None,
    which: Annotated[str, arg(metavar="latest|best|STEP")] = "latest",
    ema: EmaFlag = False,
    no_ema: NoEmaFlag = False,
    json: JsonFlag = False,
) -> int:
    """Write a run's weights to one file for use elsewhere; nothing is overwritten.

    Args:
        path: A run directory, or one of its checkpoints.
        format: safetensors, with classes, normalisation and result in its metadata; or torchvision's state dict (.pth).
        out: The file; left out: named after the run, in this folder.
        which: Which checkpoint of a run.
    """
    from vernier.engine.load import export as write

    made = write(Path(path), format, Path(out) if out else None, which=which, averaged=_averaged(ema, no_ema))
    if json:
        _print_json({"path": str(made), "format": format})
    else:
        sys.stdout.write(f"{made}\n")
    return EXIT_DONE


def recipes(
    action: Positional[Literal["list", "show"]] = "list",
    name: Annotated[Positional[str | None], arg(metavar="NAME", help_behavior_hint="")] = None,
    /,
    *,
    device_hours: Annotated[str | None, _pathlike("RUN|IMG_PER_S")] = None,
    json: JsonFlag = False,
) -> int:
    """List the built-in recipes, or print one as a TOML file to edit: vernier recipes show NAME > mine.toml

    Args:
        action: list, or show one.
        name: Which one to show.
        device_hours: Estimate the cost of each on a device, from a training run on it, or from the images a second at
            which it trains a ResNet-50 at 224 pixels.
    """
    from vernier import recipes as book
    from vernier.config import to_dict

    if action == "show":
        if name is None:
            raise ConfigError("Which recipe? vernier recipes show NAME; vernier recipes lists them.")
        chosen = book.named(name)
        if json:
            _print_json({"notes": book.notes(name), "recipe": to_dict(chosen)})
        else:
            sys.stdout.write(
                "".join(f"# {line}".rstrip() + "\n" for line in book.notes(name).splitlines()) + "\n" + to_toml(chosen)
            )
        return EXIT_DONE
    rows = book.table()
    if device_hours is not None:
        from vernier.report.cost import estimated_hours

        hours, basis = estimated_hours([book.named(n) for n in book.BUILT_IN], book.train_images, device_hours)
        rows = [{**row, "estimated_device_hours": round(h, 2)} for row, h in zip(rows, hours, strict=True)]
        _say(f"Device hours are an ESTIMATE: {basis}.")
    _print_rows(rows, json)
    return EXIT_DONE


def models(*, json: JsonFlag = False) -> int:
    """List the networks with their parameters and cost."""
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
    _print_rows(rows, json)
    return EXIT_DONE


def doctor(*, json: JsonFlag = False) -> int:
    """Tell what this machine can do: versions, devices, what is missing and how to get it."""
    from vernier.measure.doctor import examine

    found = examine()
    if json:
        _print_json(found)
        return EXIT_DONE
    _print_rows([{"what": k, "value": str(v)} for k, v in found["machine"].items()], False)
    _print_rows([{"package": k, "version": v or "missing"} for k, v in found["versions"].items()], False)
    _print_rows(found["devices"], False)
    for line in found["advice"]:
        sys.stdout.write(f"- {line}\n")
    return EXIT_DONE


def bench(
    what: Positional[Literal["data"]],
    /,
    *,
    data: Annotated[str, _pathlike("PATH")],
    against: Annotated[tuple[Literal["pillow", "dali"], ...], arg(metavar="pillow|dali ...")] = (),
    workers: int = 1,
    rounds: int = 10,
    images: int = 500,
    image_px: int = 224,
    json: JsonFlag = False,
) -> int:
    """Measure how fast images become training batches (RandomResizedCrop, flip), beside other loaders on the same cores.

    Args:
        what: data.
        data: What to read: an image folder, shards or raw; the others read image folders only.
        against: Other loaders to take turns with.
        workers: Threads, or processes where a loader uses those.
        rounds: Turns each loader gets.
        images: Images a turn.
        image_px: Side of a training image.
    """
    from vernier.data.bench import compare, folder_contenders, report

    named, pairs = folder_contenders(Path(data), workers, against, image_px)
    found = report(compare(named, rounds=rounds, images=images), pairs)
    if json:
        _print_json(found)
        return EXIT_DONE
    _print_rows(found["contenders"], False)
    if found["ratios"]:
        _print_rows(
            [{k: round(v, 3) if isinstance(v, float) else v for k, v in r.items()} for r in found["ratios"]], False
        )
    return EXIT_DONE


def _print_rows(rows: list[dict[str, Any]], json: bool) -> None:
    if json:
        _print_json(rows)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in rows[0]:
        numeric = all(isinstance(r[column], int | float) for r in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(
            *(f"{v:,}" if isinstance(v, int) else f"{v:g}" if isinstance(v, float) else str(v) for v in row.values())
        )
    console = Console(highlight=False)
    console.print(table) if console.is_terminal else Console(highlight=False, width=160).print(table)


COMMANDS: dict[str, Callable[..., int]] = {
    "train": train,
    "eval": evaluate,
    "export": export,
    "recipes": recipes,
    "models": models,
    "bench": bench,
    "doctor": doctor,
}


def data() -> int:
    """Make, prepare, verify, inspect or fetch data sets: vernier data --help lists the actions."""
    raise ConfigError("Which action? vernier data make, prepare, verify, inspect or get; vernier data --help explains.")


def _app(arguments: list[str]) -> tuple[tyro.extras.SubcommandApp, list[str], str]:
    """The commands that the arguments are meant for, and the arguments left."""
    app = tyro.extras.SubcommandApp()
    if arguments[0] == "data" and len(arguments) > 1:
        from vernier import cli_data

        for name, function in cli_data.COMMANDS.items():
            app.command(name=name)(function)
        return app, arguments[1:], "vernier data"
    for name, function in {**COMMANDS, "data": data}.items():
        app.command(name=name)(function)
    return app, arguments, "vernier"


def main(arguments: list[str] | None = None) -> int:
    """Run one command and turn errors meant for people into a message and an exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments:
        sys.stdout.write(WELCOME)
        return EXIT_DONE
    if arguments in (["--version"], ["-V"]):
        from vernier import __version__

        sys.stdout.write(f"vernier {__version__}\n")
        return EXIT_DONE
    # Threads that spin for long while they wait make training many times slower when anything else uses the cores.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    app, rest, prog = _app(arguments)
    try:
        code: int = app.cli(
            args=rest,
            prog=prog,
            description="Make, prepare and check data sets."
            if rest is not arguments
            else "Train, evaluate and measure vision models.",
            config=(OmitArgPrefixes,),
            sort_subcommands=False,
        )
        return code
    except ConfigError as error:
        _say(f"vernier: {error}")
        return EXIT_USAGE
    except RunFailed as error:
        _say(f"vernier: {error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        _say("vernier: interrupted")
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return EXIT_FAILED
