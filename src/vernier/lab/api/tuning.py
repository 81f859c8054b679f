"""Tuning: what `vernier tune` and the functions `tune_train` and `tune_infer` search, and the result as an object.

The search is `lab.tuning`'s.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vernier import recipes
from vernier.api.functions import function
from vernier.api.session import Session
from vernier.api.starting import limit_spinning, sigterm_as_interrupt
from vernier.api.wording import Interrupted
from vernier.config import Config, Work, check_config
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.requests.tuning import Tune, TuneInfer, TuneTrain
from vernier.models import is_detector
from vernier.records.bench import SettingValue, TuneResult
from vernier.records.codec import decode, encode
from vernier.references import given, use
from vernier.requests.values import StrPath, seconds
from vernier.store import write_atomically

from .benchmarks import called_by_old_name, device_kind, measured_settings, starting_recipe, with_batch

if TYPE_CHECKING:
    from vernier.lab.tuning.candidates import Situation


@frozen
class Prepared:
    """A search that can begin: its start, what decides which values make sense, and notes."""

    config: Config
    situation: "Situation"
    out: Path
    notes: tuple[str, ...]


def prepare(request: Tune) -> Prepared:
    """The search of a request, with everything refused that cannot work. Raises ConfigError."""
    from vernier.cores import allowed_cores
    from vernier.engine.runtimes.requirements import installed_engines
    from vernier.lab.bench.combinations import at_final_size
    from vernier.lab.tuning.candidates import Situation

    work: Work = "infer" if isinstance(request, TuneInfer) else "train"
    out = _new_file(Path(request.out), overwrite=request.overwrite)
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
    return Prepared(config=config, situation=situation, out=out, notes=tuple(notes))


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
    """Search, and write the machine file; after Ctrl-C or SIGTERM nothing is written. Raises ConfigError, RunFailed."""
    from vernier.clock import now_s
    from vernier.lab.tuning.live import LiveStable
    from vernier.lab.tuning.results import file_text, make_result
    from vernier.lab.tuning.search import Search

    prepared = prepare(request)
    limit_spinning()
    began_s, stopped = now_s(), False
    search = Search(
        config=prepared.config,
        situation=prepared.situation,
        stable=LiveStable(prepared.situation.work),
        minutes=seconds(request.time) / 60,
        say=session.say,
        seed=request.seed,
    )
    try:
        with sigterm_as_interrupt():
            search.run()
    except KeyboardInterrupt:
        stopped = True
    notes = (*prepared.notes, *search.notes)
    result = make_result(search, seconds=now_s() - began_s, stopped=stopped, notes=notes)
    if stopped:
        return result
    write_atomically(prepared.out, file_text(result, prepared.config, prepared.situation, search.ready))
    return replace(result, file=prepared.out)


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
        from vernier.lab.tuning.results import table

        return table(self.result.settings)

    def __repr__(self) -> str:
        from vernier.lab.tuning.results import headline

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
