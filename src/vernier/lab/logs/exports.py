"""Options `raport` and `dllogger` of training and benchmarks: NVIDIA's logs of a run, written from it when it ends."""

from collections.abc import Mapping
from pathlib import Path

from vernier.errors import ConfigError, RunFailed
from vernier.references import given

from .reading import open_to_convert
from .writing import convert_all

Files = Mapping[str, str | None]
"""Format -> file to write; None: no file."""


def check_exports(files: Files) -> None:
    """Raise ConfigError before anything runs where a file exists already or its folder cannot be."""
    for form, file in files.items():
        if file is None:
            continue
        path = Path(file).expanduser()
        if path.exists():
            raise ConfigError(f"{given(form, file)} exists already. Choose another file: nothing is overwritten.")
        # The folder may not exist yet, but what it would be made in must be a folder: checked before hours of training.
        above = next(p for p in path.resolve().parents if p.exists())
        if not above.is_dir():
            raise ConfigError(f"{given(form, file)}: {above} is a file, not a folder.")


def write_exports(run: Path, files: Files) -> list[Path]:
    """Write the logs of a run; where they are. Raises RunFailed where it has nothing to write; it is intact."""
    written = []
    for form, file in files.items():
        if file is None:
            continue
        try:
            written += convert_all(open_to_convert(str(run)), form, Path(file).expanduser())
        except ConfigError as error:
            raise RunFailed(
                f"{given(form, file)} was not written: {error.message} The run is complete: {run}"
            ) from None
    return written
