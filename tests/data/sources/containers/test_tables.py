"""Tables are safetensors files, and equal tables are equal bytes."""

from pathlib import Path

import numpy as np
import pytest

from vernier.data.sources.containers.tables import Columns, load_or_scan, read_table, table_path, write_table


def test_a_table_is_the_layout_of_safetensors_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    columns = {
        "small": np.arange(3, dtype="u1"),
        "large": np.arange(8, dtype="u8").reshape(4, 2),
        "none": np.zeros(0, "f4"),
    }
    write_table(tmp_path / "a.table", columns, {"b": "1", "a": "2"})
    write_table(tmp_path / "b.table", dict(reversed(columns.items())), {"a": "2", "b": "1"})
    assert (tmp_path / "a.table").read_bytes() == (tmp_path / "b.table").read_bytes()
    loaded, (columns_read, metadata) = load_file(tmp_path / "a.table"), read_table(tmp_path / "a.table")
    assert metadata == {"a": "2", "b": "1"}
    for name, values in columns.items():
        assert np.array_equal(loaded[name], values)
        assert np.array_equal(columns_read[name], values)


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.table"
    write_table(path, {"x": np.arange(4, dtype="u4")}, {})
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="is truncated"):
        read_table(path)
    path.write_bytes(b"\xff" * 16)
    with pytest.raises(ValueError, match="is not a table"):
        read_table(path)


def test_a_table_is_scanned_again_only_when_its_stamp_differs(tmp_path: Path) -> None:
    scans = []

    def scan() -> tuple[Columns, dict[str, str]]:
        scans.append(1)
        return {"x": np.arange(3, dtype="u4")}, {"about": "three"}

    for stamp in ("1", "1", "2"):
        columns, metadata = load_or_scan(tmp_path / "data", {"bytes": stamp}, scan)
        assert columns["x"].tolist() == [0, 1, 2]
        assert {key: metadata[key] for key in ("bytes", "about")} == {"bytes": stamp, "about": "three"}
    assert len(scans) == 2
    assert table_path(tmp_path / "data").is_file()


def test_a_table_is_stored_in_the_cache_where_its_folder_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERNIER_HOME", str(tmp_path / "home"))
    (tmp_path / "data.table").mkdir()  # nothing can be renamed to this
    for _ in range(2):
        load_or_scan(tmp_path / "data", {}, lambda: ({"x": np.arange(3, dtype="u4")}, {}))
    assert len(list((tmp_path / "home" / "data" / "tables").iterdir())) == 1


def test_every_damage_of_a_table_is_a_value_error_or_leaves_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.table"
    write_table(path, {"x": np.arange(4, dtype="u4"), "y": np.arange(6, dtype="u1").reshape(2, 3)}, {"a": "b"})
    content = path.read_bytes()
    dice = np.random.default_rng(0)
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(int(dice.integers(1, 4))):
            damaged[int(dice.integers(len(damaged)))] = int(dice.integers(256))
        path.write_bytes(damaged)
        try:
            columns, _ = read_table(path)
        except ValueError:
            continue
        assert all(isinstance(values.sum().item(), int | float) for values in columns.values())


@pytest.mark.parametrize(
    "header",
    [
        "[]",
        "[" * 50_000,
        '{"x": 3}',
        '{"x": {"dtype": "U8", "shape": [4], "data_offsets": [0, 400]}}',
        '{"x": {"dtype": "U8", "shape": [-1, -4], "data_offsets": [0, 4]}}',
        '{"x": {"dtype": "object", "shape": [4], "data_offsets": [0, 4]}}',
        '{"x": {"dtype": "U8", "shape": [4], "data_offsets": [-4, 0]}}',
        '{"__metadata__": [], "x": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}',
    ],
)
def test_a_header_that_is_none_is_a_value_error(tmp_path: Path, header: str) -> None:
    text = header.encode()
    (tmp_path / "a.table").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(ValueError, match=r"is not a table|is truncated"):
        read_table(tmp_path / "a.table")
