"""Tuning: what `vernier tune` and the functions `tune_train` and `tune_infer` search, and the result as an object.

The search is `lab.tuning`'s.
"""

import json
import os
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from vernier import recipes
from vernier.api.functions import function
from vernier.api.session import Session
from vernier.api.starting import limit_spinning, sigterm_as_interrupt
from vernier.api.wording import Interrupted
from vernier.clock import now_s, wall_s
from vernier.config import Work, check_config, to_dict
from vernier.cores import allowed_cores
from vernier.data.unfinished import locked_file
from vernier.engine.inference.engines import installed_engines
from vernier.errors import ConfigError
from vernier.lab.bench.configurations import at_final_size
from vernier.lab.records.bench import SettingValue, TuneProgress, TuneResult
from vernier.lab.report.progress import Display
from vernier.lab.requests.tuning import Tune, TuneInfer, TuneTrain
from vernier.lab.tuning.candidates import Situation
from vernier.lab.tuning.results import file_text, headline, make_result, table
from vernier.lab.tuning.search import Processes, Search
from vernier.measure.environment import installed_version
from vernier.models import is_detector
from vernier.quantities import parse_duration
from vernier.records.codec import decode, encode
from vernier.references import given, use
from vernier.requests.values import StrPath
from vernier.store import read_record, write_atomically, write_json
from vernier.version import describe_version

from .benchmarks import called_by_old_name, device_kind, measured_settings, starting_recipe, with_batch

_DAY_S = 86_400.0


def prepare(request: Tune) -> Search:
    """The search of a request, with everything refused that cannot work. Raises ConfigError."""
    work: Work = "infer" if isinstance(request, TuneInfer) else "train"
    start = starting_recipe(request)
    values = {**request.changes(), **measured_settings(request, start)}
    changed = recipes.change(start, values, request.settings)
    config, notes = with_batch(changed, work)
    if work == "train":
        config = at_final_size(config)[0]
        check_config(config, detector=is_detector(config.recipe.model.name))
    own = recipes.change(start, {"model.name": request.model}, ()).config.recipe
    situation = Situation(
        work=work,
        device=device_kind(config.machine.device),
        cores=len(allowed_cores()),
        real_data=config.recipe.data.source not in ("synthetic", "static"),
        engines=tuple(installed_engines()),
        fixed=frozenset(name.removeprefix("machine.") for name in changed.named if name.startswith("machine.")),
        allow_split=isinstance(request, TuneTrain) and request.allow_split,
        own_batch=config.recipe.global_batch == own.global_batch,
    )
    return Search(
        config=config,
        situation=situation,
        machine=Processes(work),
        minutes=parse_duration(request.time) / 60,
        seed=request.seed,
        notes=notes,
    )


def _new_file(path: Path, *, overwrite: bool) -> Path:
    """Where the machine file will be. Raises ConfigError before anything is measured."""
    name = given("out", path)
    if path.suffix != ".toml":
        raise ConfigError(f"{name}: a machine file ends in .toml.")
    if path.exists() and not overwrite:
        raise ConfigError(f"{name} exists. Give another name, or {use('overwrite', True)} to replace it.")
    if path.is_dir():
        raise ConfigError(f"{name} is a folder. Give the name of a file.")
    if not path.parent.is_dir():
        raise ConfigError(f"{name}: there is no folder {path.parent}. Create it, or give another name.")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise ConfigError(f"{name} cannot be written: no permission. Give a file in a folder of your own.")
    return path


def search_settings(request: Tune, session: Session) -> TuneResult:
    """Search, and write the machine file. The same search of today that was interrupted is completed.

    After Ctrl-C or SIGTERM there is no machine file. Raises ConfigError, RunFailed.
    """
    # Before all else: a file that cannot be written must not cost ten minutes.
    out = _new_file(Path(request.out), overwrite=request.overwrite)
    search, display = prepare(request), Display(session)
    search.say, search.show = display.say, display.show
    limit_spinning()
    with ExitStack() as held:
        try:
            held.enter_context(locked_file(out.with_name(f".{out.name}.lock"), wait=False))
        except BlockingIOError:
            raise ConfigError(
                f"Another search will write {given('out', out)}. Wait for it, or give another name."
            ) from None
        progress_file = out.with_name(f".{out.name}.search.json")
        _resume(search, progress_file)
        began_s, stopped = now_s() - search.spent_s, False
        try:
            with display, sigterm_as_interrupt():
                search.run()
        except KeyboardInterrupt:
            stopped = True
            if search.settings:
                search.notes.append("the same command continues after the settings that were tried")
        result = make_result(search, seconds=now_s() - began_s, stopped=stopped)
        if stopped:
            return result
        # First: what is left next to a machine file would be taken for a search that is to be continued.
        progress_file.unlink(missing_ok=True)
        write_atomically(out, file_text(result, search))
    return replace(result, file=out)


def _resume(search: Search, progress_file: Path) -> None:
    """Take over what the same search of the last day had tried, and keep what this one tries in the file."""
    situation = {**vars(search.situation), "fixed": sorted(search.situation.fixed)}
    versions = describe_version(), installed_version("torch")
    identity = json.dumps([to_dict(search.config), situation, search.minutes, search.seed, versions])
    with suppress(OSError, ConfigError):
        earlier = read_record(TuneProgress, progress_file)
        if earlier.search == identity and wall_s() - progress_file.stat().st_mtime < _DAY_S:
            search.settings, search.chosen = list(earlier.settings), dict(earlier.chosen)
            search.spent_s = earlier.spent_s
            tried = ", ".join(setting.name for setting in search.settings)
            search.say(f"continuing an interrupted search after {tried}")

    def keep() -> None:
        progress = TuneProgress(
            search=identity, settings=tuple(search.settings), chosen=search.chosen, spent_s=search.spent_s
        )
        with suppress(OSError):  # a full disk: an interrupted search is repeated then
            write_json(progress_file, encode(progress))

    search.keep = keep


class Tuning:
    """What a search for the fastest settings measured. `path` is the machine file, `result` the record of it all."""

    def __init__(self, result: TuneResult) -> None:
        self.result = decode(TuneResult, encode(result))  # whose texts name settings, and no options
        self.path: Path | None = result.file

    def __fspath__(self) -> str:
        return os.fspath(self.path or "")

    @property
    def machine(self) -> dict[str, SettingValue]:
        """The settings of the file, by name."""
        return dict(self.result.machine)

    def table(self) -> list[dict[str, str]]:
        """The settings and their values as people read them: one mapping of column to text per row."""
        return table(self.result.settings)

    def __repr__(self) -> str:
        return f"Tuning({self.path}, {headline(self.result)})"


def _tune(request: Tune, session: Session) -> Tuning:
    result = search_settings(request, session)
    if result.stopped:
        raise Interrupted("Tuning interrupted: nothing was written.", None)
    return Tuning(result)


tune_train = function(TuneTrain, _tune, "tune_train")
tune_infer = function(TuneInfer, _tune, "tune_infer")


def tune(recipe: StrPath | None = None, kind: str = "train", **options: Any) -> Tuning:
    """The old name of `tune_train` and `tune_infer`; it stops working in 0.5."""
    result: Tuning = called_by_old_name("tune", {"train": tune_train, "infer": tune_infer}, kind, recipe, options)
    return result
