"""Tables of labels next to images: CSV files with a row per image, or per box.

`labels.csv` (image, label and, optionally, split), Hugging Face's `metadata.csv`, a `train.csv` next to `train/`; boxes
as Open Images and TensorFlow's object detection have them. Columns are recognized by their usual names. Class tables
plug in as `vernier.data_layouts`, boxes as `vernier.box_formats`. An error names the line.
"""

import csv
import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from vernier.data.sources.base import DataLayout, Names
from vernier.data.sources.boxes.annotated import SPLITS, AnnotatedImage, Annotations, Reader, Row, path_inside
from vernier.data.sources.folder import FolderSource, visible_paths
from vernier.data.sources.values import positive_size, read_lines, read_text
from vernier.errors import ConfigError, NoSuchSplit
from vernier.frozen import frozen

_COLUMNS = {
    "image": ("image", "file_name", "filename", "file", "path", "image_path", "imageid", "image_id", "id"),
    "label": ("label", "class", "class_name", "labelname", "category", "target", "breed"),
    "split": ("split", "set", "subset", "usage"),
}
_EDGES = ("xmin", "ymin", "xmax", "ymax")
_FOLDERS = ("images", "JPEGImages", "data", "train", "val", "valid", "validation", "test")


@frozen
class _Table:
    """A CSV file by its header, with names in lower case."""

    path: Path
    delimiter: str
    columns: tuple[str, ...]

    @classmethod
    def open(cls, path: Path) -> "_Table":
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            header = file.readline(10_000).strip()
        delimiter = max(",;\t", key=header.count)
        columns = tuple(name.strip().strip('"').lower() for name in header.split(delimiter))
        return cls(path=path, delimiter=delimiter, columns=columns)

    def column(self, kind: str) -> str | None:
        return next((name for name in _COLUMNS[kind] if name in self.columns), None)

    @property
    def boxes(self) -> bool:
        return self.labelled and set(_EDGES) <= set(self.columns)

    @property
    def labelled(self) -> bool:
        return self.column("image") is not None and self.column("label") is not None

    def split(self, root: Path) -> str:
        """The split that its name, or its folder, says; empty for none."""
        name = self.path.parent.name if self.path.parent != root else self.path.stem
        return next((s for s, names in SPLITS.items() if name.lower().startswith((*names, s))), "")

    def rows(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Where a row is, and its values by column. Raises ConfigError for one with other columns."""
        reader = csv.reader(io.StringIO(read_text(self.path)), delimiter=self.delimiter)
        next(reader, None)
        for values in filter(None, reader):
            where = f"{self.path}, line {reader.line_num}"
            if len(values) != len(self.columns):
                raise ConfigError(f"{where}: {len(values)} values for {len(self.columns)} columns.")
            yield where, dict(zip(self.columns, map(str.strip, values), strict=True))


def _tables(root: Path, *, boxes: bool) -> list[_Table]:
    folders = [root, *(root / name for name in _FOLDERS if (root / name).is_dir())]
    paths = [path for folder in folders for path in sorted(visible_paths(folder, "*.csv"))]
    return [table for table in map(_Table.open, paths) if table.labelled and table.boxes == boxes]


def _find(root: Path, table: _Table, name: str, where: str) -> Path:
    """The file of an image, which a table may name without its folder or its ending. Raises ConfigError."""
    if not name:
        raise ConfigError(f"{where}: the image has no name.")
    for folder in dict.fromkeys((table.path.parent, root, *(root / each for each in _FOLDERS))):
        for ending in ("", ".jpg", ".png", ".jpeg"):
            if (path := path_inside(folder, name + ending)).is_file():
                return path
    raise ConfigError(f"{where}: there is no image {name!r} in {root}, {table.path.parent} or {root / 'images'}.")


def _value(table: _Table, kind: str, row: dict[str, str], where: str) -> str:
    column = table.column(kind)
    assert column is not None
    if not row[column]:
        raise ConfigError(f"{where}: the column {column} is empty.")
    return row[column]


def _split_of(table: _Table, root: Path, row: dict[str, str], where: str) -> str:
    """The split of a row: in its own column, or that of the file. Empty for a set without splits."""
    if (column := table.column("split")) is None:
        return table.split(root)
    split = next((s for s, names in SPLITS.items() if row[column].lower() in (*names, s, f"{s}ing")), None)
    if split is None:
        raise ConfigError(f"{where}: the split {row[column]!r} is not one of train, val and test.")
    return split


# ------------------------------------------------------------------------------------------------------------- classes


class TableSource(FolderSource):
    """Images of one class each, as tables list them; `columns` has the other values by the name of the image."""

    columns: dict[str, dict[str, str]]

    def __init__(self, root: Path, split: str) -> None:
        self.root, label_of, labels = root, dict[str, str](), set[str]()
        self.columns, splits = {}, set[str]()
        tables = _tables(root, boxes=False)
        for table in tables:
            for where, row in table.rows():
                label, of = _value(table, "label", row, where), _split_of(table, root, row, where)
                # Classes are those of all splits: they must be numbered alike in each.
                labels.add(label)
                splits.add(of)
                if of not in ("", split):
                    continue
                path = _find(root, table, _value(table, "image", row, where), where)
                name = path.relative_to(root).as_posix()
                if label_of.setdefault(name, label) != label:
                    raise ConfigError(f"{where}: {name} is {label} here and {label_of[name]} in another line.")
                self.columns[name] = row
        if not label_of:
            listed = ", ".join(str(table.path) for table in tables)
            raise NoSuchSplit(f"{listed}: no image of the {split} split. They have: {', '.join(sorted(splits))}.")
        numeric = all(label.isascii() and label.isdecimal() for label in labels)
        self.classes = tuple(sorted(labels, key=int if numeric else str))
        numbers = {label: number for number, label in enumerate(self.classes)}
        names = sorted(label_of)
        self._names, self.labels = Names.of(names), np.array([numbers[label_of[n]] for n in names], np.int64)
        self.undivided = splits == {""}
        self.notes = (f"labels from {', '.join(table.path.name for table in tables)}",)


def _open_classes(root: Path, split: str) -> TableSource | None:
    return TableSource(root, split) if _tables(root, boxes=False) else None


LAYOUT = DataLayout(open_classes=_open_classes, open_boxes=lambda root, split: None)  # boxes: `find_boxes`


# --------------------------------------------------------------------------------------------------------------- boxes


def find_boxes(root: Path, split: str | None) -> Reader | None:
    """A reader of the tables of a split; without one, of tables that belong to none."""
    tables = [table for table in _tables(root, boxes=True) if table.column("split") is None]
    chosen = [table for table in tables if table.split(root) == (split or "")]
    return partial(_read_boxes, root, chosen, tables) if chosen else None


def _read_boxes(root: Path, chosen: list[_Table], tables: list[_Table]) -> Annotations:
    names = _class_names(root)
    labels = {_value(table, "label", row, where) for table in tables for where, row in table.rows()}
    classes = sorted(labels)
    rows, sizes = dict[Path, list[Row]](), dict[Path, tuple[int, int] | None]()
    for table in chosen:
        for where, row in table.rows():
            path = _find(root, table, _value(table, "image", row, where), where)
            try:
                left, top, right, bottom = (float(row[edge]) for edge in _EDGES)
                sizes[path] = positive_size(row.get("width"), row.get("height"))
            except ValueError as error:
                raise ConfigError(f"{where}: {error}.") from None
            label = classes.index(_value(table, "label", row, where))
            rows.setdefault(path, []).append(Row(left, top, right, bottom, label, row.get("isgroupof") == "1"))
    # Open Images gives edges as fractions of the image. No table of pixels has all of its boxes in the first pixel.
    shares = all(edge <= 1 for each in rows.values() for row in each for edge in row[:4])
    return Annotations(
        samples=[
            AnnotatedImage(path=path, image_id=i, rows=tuple(rows[path]), size=sizes[path], shares=shares)
            for i, path in enumerate(sorted(rows))
        ],
        classes=tuple(names.get(label, label) for label in classes),
        where=", ".join(str(table.path) for table in chosen),
    )


def _class_names(root: Path) -> dict[str, str]:
    """Open Images' names of its labels, such as /m/01g317: a file without a header."""
    path = next(iter(sorted(visible_paths(root, "class-descriptions*.csv"))), None)
    lines = read_lines(path) if path is not None else ()
    return {code: name.strip('"') for code, _, name in (line.partition(",") for line in lines)}
