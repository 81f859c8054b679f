"""What the commands of a study read: flags that name files and columns, and the table they give."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vernier.cli.flags import optional
from vernier.errors import ConfigError

if TYPE_CHECKING:
    from vernier.measure.study.analysis import Table

Columns = Annotated[str | None, optional("step_time=NAME,device=NAME,...")]
Units = Annotated[str | None, optional("UNIT|step_time=UNIT,power=UNIT,...")]


def read_sources(
    sources: tuple[str, ...], columns: str | None, units: str | None, drop_duplicates: bool = False
) -> "Table":
    """The table of all sources. Raises ConfigError naming what is missing."""
    from vernier.report.study.columns import FIELDS, ColumnOptions, parse_pairs, parse_units
    from vernier.report.study.tables import read_table

    if not sources:
        raise ConfigError("Name what to read: study directories, CSV files, logs, or folders of them.")
    options = ColumnOptions(
        columns=parse_pairs(columns, "--columns", FIELDS),
        units=parse_units(units),
        drop_duplicates=drop_duplicates,
    )
    return read_table([Path(s).expanduser() for s in sources], options)
