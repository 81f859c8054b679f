"""Machine files: TOML with the table `[machine]`, the settings of that name.

`vernier tune` writes them, with a table `[tuned]` that records for which work and where that was; people can write them
too.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.references import command, given
from vernier.wording import plural

from .parsing import from_dict, override, to_dict, toml_value
from .settings import Config, Machine, option

TABLES = ("machine", "tuned")
Work = Literal["train", "infer"]
WORK_NAMES = {"train": "training", "infer": "inference"}


@frozen
class Tuned:
    """The table `[tuned]`: the work and the machine for which `vernier tune` chose the settings."""

    work: Work = option("train", "train or infer")
    network: str = option("", "the network")
    device: str = option("", "kind and name of the device")
    cores: int = option(0, "CPU cores")
    date: str = option("", "day of the measurement")
    torch: str = option("", "version of PyTorch")
    vernier: str = option("", "version of Vernier")


@frozen
class MachineFile:
    """The settings of a file, by name without `machine.`, and notes about it."""

    path: Path
    settings: Mapping[str, Any]
    tuned: Tuned | None = None
    notes: tuple[str, ...] = ()

    def apply(self, config: Config, named: set[str]) -> tuple[Config, list[str]]:
        """The configuration with these settings, except the `named` ones, which a person set; and notes about it."""
        # What a person typed for this run wins over what was tuned for many.
        used = {name: value for name, value in self.settings.items() if f"machine.{name}" not in named}
        for name, value in used.items():
            config = override(config, f"machine.{name}", value)
        text = ", ".join(f"{name} = {toml_value(value)}" for name, value in used.items()) or "nothing"
        others = [name for name in self.settings if name not in used]
        notes = [f"settings of the machine file {self.path}: {text}", *self.notes]
        if others:
            notes.append(f"settings of {self.path} that are replaced by those given: {', '.join(others)}")
        network = config.recipe.model.name
        if self.tuned is not None and self.tuned.network not in ("", network):
            notes.append(
                f"{self.path} was tuned for {self.tuned.network}, and this is {network}: other settings may be faster"
            )
        return config, notes

    def refuse_other_work(self, work: Work) -> None:
        """Refuse to use it for the other kind of work: its settings were never measured for this one."""
        if self.tuned is not None and self.tuned.work != work:
            own, other = WORK_NAMES[work], WORK_NAMES[self.tuned.work]
            raise ConfigError(
                f"{given('machine', self.path)} was tuned for {other}, and this is {own}. Make one for it with "
                f"{command(f'tune {work}', 'RECIPE')}, or remove the table [tuned] from the file to use it anyway."
            )

    def notes_on(self, device: str, cores: int) -> tuple[str, ...]:
        """A note if it was tuned on another device than this one, such as `cpu (NAME)`."""
        tuned = self.tuned
        if tuned is None or (tuned.device, tuned.cores) == (device, cores):
            return ()
        return (
            f"{self.path} was tuned on {tuned.device} with {plural(tuned.cores, 'core')}, and this is {device} with "
            f"{plural(cores, 'core')}: run {command('tune')} here",
        )


def read_machine_file(path: Path) -> MachineFile:
    """A machine file with its settings checked. Raises ConfigError."""
    tables = _read_tables(path)
    machine, tuned = (tables.get(name, {}) for name in TABLES)
    if not all(isinstance(table, dict) for table in (machine, tuned)):
        raise ConfigError(f"{path}: machine and tuned must be tables: [machine], [tuned].")
    try:
        # Checked as a whole, then reduced to what the file has: defaults must not replace those of a recipe.
        checked = to_dict(from_dict(Machine, machine, "machine"))
        own = from_dict(Tuned, tuned, "tuned") if "tuned" in tables else None
    except ConfigError as error:
        raise error.within(path) from None
    return MachineFile(path=path, settings={name: checked[name] for name in machine}, tuned=own)


def _read_tables(path: Path) -> Mapping[str, Any]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the machine file {path}: {error}.") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    # A recipe's settings would be ignored in silence.
    if unknown := next((name for name in tables if name not in TABLES), None):
        raise ConfigError(
            f"{path} has {unknown!r}. A machine file has the tables [machine] and [tuned] and no more; settings "
            "of a recipe belong into the recipe's file."
        )
    return tables
