"""Reading studies of others: known forms, any CSV with a mapping, and what is wrong with them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.nvprof_trace import NVPROF
from vernier.errors import ConfigError
from vernier.lab.reading.columns import ColumnOptions
from vernier.lab.reading.tables import read_table

Runner = Callable[..., Any]
OPTIONS = ColumnOptions(columns={"step_time": "time", "device": "gpu"}, units={"step_time": "ms"})
MS = ColumnOptions(units={"step_time": "ms"})


def _csv(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_any_csv_with_a_mapping(tmp_path: Path, vernier_here: Runner) -> None:
    path = _csv(
        tmp_path / "x.csv",
        "gpu,time,clock,watts,run\n" + "".join(f"g{i % 6},{100 + i},1400,{200000 + i},{i}\n" for i in range(24)),
    )
    done = vernier_here(
        "study",
        "analyze",
        str(path),
        "--columns",
        "perf=time,device=gpu,freq=clock,power=watts,repeat=run",
        "--units",
        "perf=ms,power=mW",
        "--json",
    )
    assert done.code == 0, done.err
    table = done.json()
    assert (table["runs"], table["devices_measured"], table["unit"], table["what"]) == (24, 6, "ms", "time")
    assert table["correlation"]["pearson"]["step_time"]["power"] == pytest.approx(1)
    assert table["correlation"]["constant"] == ["freq"]


@pytest.mark.parametrize(
    ("header", "options", "unit"),
    [
        ("gpu,time_ms", ColumnOptions(columns={"step_time": "time_ms", "device": "gpu"}), "ms"),
        ("gpu,duration (us)", ColumnOptions(columns={"step_time": "duration (us)", "device": "gpu"}), "us"),
        ("gpu,speed img/s", ColumnOptions(columns={"step_time": "speed img/s", "device": "gpu"}), "img/s"),
    ],
)
def test_units_in_column_names(tmp_path: Path, header: str, options: ColumnOptions, unit: str) -> None:
    table = read_table([_csv(tmp_path / "x.csv", f"{header}\na,1\nb,2\n")], options)
    assert table.unit == unit
    assert table.slow_is_high == (unit != "img/s")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", OPTIONS, "is empty"),
        ("gpu,time\n", OPTIONS, "no rows"),
        (
            "a,b\n1,2\n",
            ColumnOptions(),
            r"which column of .* is the step time. Name it with columns=step_time=.*the columns are a, b",
        ),
        ("gpu,tiem\na,1\n", OPTIONS, "no column 'time'. Did you mean tiem"),
        (
            "gpu,time\na,1\n",
            ColumnOptions(columns=OPTIONS.columns),
            "the unit of 'time', and nothing else in its rows tells it. State it: units=ms",
        ),
        (
            "gpu,time\na,1\n",
            ColumnOptions(columns=OPTIONS.columns, units={"step_time": "parsec"}),
            "'parsec' is no unit of a step time or a rate",
        ),
        ("gpu,time\na,1\nb,1 fortnight\n", OPTIONS, "'fortnight' is no unit of a step time or a rate"),
        ("gpu,time\na,nan\nb,\n,3\n", OPTIONS, "No usable row"),
        ("gpu,time\na,0.11\nb,110\nc,0.12\n", OPTIONS, "units seem to be mixed"),
        ("gpu,time\na,1 ms\nb,100 img/s\n", OPTIONS, "mixes img/s and ms"),
        ("uuid,perf,exp\na,1,resnet\nb,1,sgemm\n", MS, "different workloads"),
        ("uuid,perf,simulated\na,1,1\n", ColumnOptions(units={"step_time": "ms", "power": "horse"}), "use W or mW"),
    ],
)
def test_wrong_files_get_a_message(tmp_path: Path, text: str, options: ColumnOptions, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_table([_csv(tmp_path / "x.csv", text)], options)


def test_impossible_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    rows = ["a,100,40,200", "a,,41,200", "b,-5,42,200", "b,nan,43,200", ",7,44,200", "c,110,900,200", "c,110,900,200"]
    text = "\n".join(["uuid,perf,temp,pwr", *rows]) + "\n"
    table = read_table([_csv(tmp_path / "x.csv", text)], MS)
    assert [r.device for r in table.rows] == ["a", "c", "c"]
    assert table.rows[1].sensors == {"freq": None, "power": 200.0, "temp": None}
    notes = " | ".join(table.notes)
    for part in (
        "2 rows with no value",
        "1 row with a value not above 0",
        "1 row with no device",
        "2 impossible values of temp",
        "1 of 7 rows are exact copies",
    ):
        assert part in notes


def test_mixed_units_in_one_column_are_converted_to_seconds(tmp_path: Path) -> None:
    table = read_table(
        [_csv(tmp_path / "x.csv", "gpu,time\na,110 ms\nb,0.12 s\n")], ColumnOptions(columns=OPTIONS.columns)
    )
    assert [r.value for r in table.rows] == pytest.approx([0.11, 0.12])
    assert "converted to seconds" in table.notes[0]


def test_simulated_and_real_devices_stay_apart(tmp_path: Path) -> None:
    real, simulated = (
        _csv(tmp_path / "r.csv", "uuid,perf\na,1\n"),
        _csv(tmp_path / "s.csv", "uuid,perf,simulated\nb,1,1\n"),
    )
    with pytest.raises(ConfigError, match="Simulated and real"):
        read_table([real, simulated], MS)


def test_an_nvprof_trace(tmp_path: Path) -> None:
    table = read_table([_csv(tmp_path / "resnet_4242_1646195998_c002-004.csv", NVPROF)])
    (row,) = table.rows
    assert (row.device, row.repeat, row.value, table.unit) == ("c002-004-0", "1646195998", 3.0, "ms")
    assert row.sensors == {"freq": 1500.0, "temp": 43.0, "power": pytest.approx(82.091)}
    with pytest.raises(ConfigError, match="gives units"):
        read_table([_csv(tmp_path / "y.csv", NVPROF.replace("s,ms,", "1,2,"))])


def test_iteration_files_of_the_sc22_study(tmp_path: Path) -> None:
    lines = "".join(
        f"Iteration Duration {i} {d} : {0.1 + d + (9 if i == 0 else 0)}\n" for i in range(5) for d in range(2)
    )
    path = _csv(tmp_path / "resnet_iterdur_1646195998_c196-031.txt", lines + "Training time: 0:01:02.5\n")
    table = read_table([path])
    assert [(r.device, round(r.value, 3)) for r in table.rows] == [("c196-031-0", 0.1), ("c196-031-1", 1.1)]


def test_mlperf_logs_and_dllogger(real_data: Callable[[str], Path]) -> None:
    mlperf = read_table([real_data("mlperf-v0.7") / "dgxa100_ngc20.06_mxnet" / "resnet"])
    assert {r.device for r in mlperf.rows} == {"1xNVIDIA DGX A100"}
    assert (len(mlperf.rows), mlperf.what, mlperf.workload) == (5, "median epoch", "resnet")
    assert mlperf.rows[0].value == pytest.approx(57, abs=2)
    dll = read_table([real_data("dllogger") / "raport.json"])
    assert dll.rows[0].value == pytest.approx(0.1326, abs=0.0005)


_STEPS = "".join(f"Iteration Duration {i} 0 : {{:g}}\n" for i in range(4))


def _logs(folder: Path, *names: str) -> None:
    for seconds, name in enumerate(names, 1):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(_STEPS.format(*[seconds / 10] * 4))


def test_logs_of_several_hosts_with_the_same_names_are_not_pooled(tmp_path: Path) -> None:
    _logs(tmp_path, *(f"cluster/host{host}/run{repeat}.txt" for host in range(6) for repeat in range(3)))
    table = read_table([tmp_path])
    assert {device: len(values) for device, values in table.by_device().items()} == {f"host{h}-0": 3 for h in range(6)}
    assert any("18 logs do not name their device" in note and "6 devices" in note for note in table.notes)
    files = [tmp_path / "cluster" / f"host{host}" / "run0.txt" for host in (2, 4)]
    assert set(read_table(files).medians()) == {"host2-0", "host4-0"}


def test_logs_named_after_devices_are_devices_of_their_folder(tmp_path: Path) -> None:
    _logs(tmp_path, *(f"host{host}/gpu{device}.txt" for host in range(2) for device in range(2)))
    devices = {f"host{host}/gpu{device}-0" for host in range(2) for device in range(2)}
    assert set(read_table([tmp_path]).medians()) == devices


def test_logs_with_names_of_their_own_are_devices(tmp_path: Path) -> None:
    _logs(tmp_path, "rack0/hostA.txt", "rack0/hostB.txt", "rack1/hostC.txt")
    assert set(read_table([tmp_path]).medians()) == {"hostA-0", "hostB-0", "hostC-0"}


def test_a_column_called_performance_is_read(tmp_path: Path) -> None:
    path = _csv(tmp_path / "x.csv", "uuid,performance\na,110\nb,120\n")
    table = read_table([path], ColumnOptions(units={"step_time": "img/s"}))
    assert ([r.value for r in table.rows], table.slow_is_high) == ([110.0, 120.0], False)
    with pytest.raises(ConfigError, match="does not state the unit of 'performance'"):
        read_table([path])


def test_the_row_numbers_of_pandas_are_no_sensor_and_no_repeat(tmp_path: Path) -> None:
    """`to_csv()` writes them as a column without a name."""
    rows = "".join(f"{i},g{i % 6},{100 + i}\n" for i in range(24))
    table = read_table([_csv(tmp_path / "x.csv", ",uuid,perf\n" + rows)], MS)
    assert len(table.rows) == 24
    assert {value for row in table.rows for value in row.sensors.values()} == {None}
    assert {row.repeat for row in table.rows} == {"0", "1", "2", "3"}
    assert (table.workload, table.notes) == ("", ())


def test_copies_are_copies_whatever_their_row_number(tmp_path: Path) -> None:
    table = read_table([_csv(tmp_path / "x.csv", ",uuid,perf\n0,a,1\n1,a,1\n2,b,1\n")], MS)
    assert "1 of 3 rows are exact copies" in table.notes[0]


@pytest.mark.parametrize(("unit", "factor"), [("s", 1.0), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)])
def test_the_unit_of_perf_follows_from_the_train_time_and_is_noted(tmp_path: Path, unit: str, factor: float) -> None:
    rows = "".join(f"g{i},{0.11 * factor:g},57.1\n" for i in range(6))
    table = read_table([_csv(tmp_path / "x.csv", "uuid,perf,train_time\n" + rows)])
    assert table.unit == unit
    assert f"x.csv: perf is taken to be in {unit}: a train_time of 57 s is then 520 iterations" in table.notes[0]


def test_the_unit_of_perf_is_asked_for_where_nothing_tells_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not state the unit of 'perf', and nothing else in its rows tells it"):
        read_table([_csv(tmp_path / "x.csv", "uuid,perf\na,110\nb,120\n")])


@pytest.mark.parametrize(
    "text",
    [
        "UUID,Perf,Temp\na,110.5,40\nb,120,41\n",
        " uuid , perf , temp \na, 110.5 ,40\nb,120,41\n",
        "uuid\tperf\ttemp\na\t110.5\t40\nb\t120\t41\n",
        "uuid;perf;temp\na;110,5;40\nb;120;41\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_other_separators_encodings_and_headers(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode(encoding))
    table = read_table([path], MS)
    assert [(r.device, r.value, r.sensors["temp"]) for r in table.rows] == [("a", 110.5, 40), ("b", 120, 41)]


def test_a_location_names_a_device_without_uuid(tmp_path: Path) -> None:
    table = read_table([_csv(tmp_path / "x.csv", "cabinet,node,device,perf\nc1,2,0,110\nc1,2,1,120\n")], MS)
    assert [r.device for r in table.rows] == ["c1-2-0", "c1-2-1"]


@pytest.mark.parametrize(("column", "unit"), [("perf_ms", "ms"), ("step_time (s)", "s"), ("Speed [img/s]", "img/s")])
def test_a_usual_name_with_its_unit_needs_no_flag(tmp_path: Path, column: str, unit: str) -> None:
    table = read_table([_csv(tmp_path / "x.csv", f"uuid,{column}\na,110\nb,120\n")])
    assert (len(table.rows), table.unit, table.notes) == (2, unit, ())


def test_a_table_of_relative_times_has_the_unit_ratio(tmp_path: Path) -> None:
    path = _csv(tmp_path / "r.csv", "uuid,perf\n" + "".join(f"g{i},{1 + i / 100}\n" for i in range(6)))
    with pytest.raises(ConfigError, match="ratio if they are relative times"):
        read_table([path])
    table = read_table([path], ColumnOptions(units={"step_time": "ratio"}))
    assert (table.unit, table.slow_is_high) == ("ratio", True)


RATIOS = """,GPU_ID,GPU_UUID,Local_GPU_ID,Node_ID,IP_addr,IN_USE,JOB_IDS,PerfVar_classA,PerfVar_classB,PerfVar_classD
0,0,GPU-0f4b2b1e-8297-a5c6-d9f9-1c2635c4cc92,0,0,129.114.44.147,False,,1.014469743078943,1.0581973029842755,1.0006066217454985
1,1,GPU-5586ec8e-9972-13cd-a4c1-dda2ad989dfc,1,0,129.114.44.147,False,,1.0168384304017835,1.0591437388904434,1.0008933728706506
0,28,GPU-e2981715-9b3e-ad31-a9d4-21e98412c132,0,7,129.114.44.150,False,,1.1098080838626039,0.997168881273605,1.0004501468195572
1,29,GPU-6b5cf8f8-6b14-6d6e-7188-62a49ef73d49,1,7,129.114.44.150,False,,1.114756001444526,1.0012061299481267,0.9997256617276686
"""
"""Rows of blox/32gpu-variability.csv of github.com/hal-uw/blox-pal: times over the median, without a unit."""


def test_a_published_table_of_ratios_is_read(tmp_path: Path) -> None:
    path = _csv(tmp_path / "32gpu-variability.csv", RATIOS)
    columns = {"step_time": "PerfVar_classA", "device": "GPU_UUID", "host": "IP_addr"}
    with pytest.raises(ConfigError, match="ratio if they are relative times"):
        read_table([path], ColumnOptions(columns=columns))
    table = read_table([path], ColumnOptions(columns=columns, units={"step_time": "ratio"}))
    assert (table.unit, [round(row.value, 3) for row in table.rows]) == ("ratio", [1.014, 1.017, 1.11, 1.115])
    assert {(row.device[:12], row.host) for row in table.rows} >= {("GPU-0f4b2b1e", "129.114.44.147")}


def test_the_duration_of_aggregated_runs_tells_the_unit_too(tmp_path: Path) -> None:
    path = _csv(tmp_path / "a.csv", "uuid,perf,train_time_mean\n" + "".join(f"g{i},{250 + i},130\n" for i in range(6)))
    assert read_table([path]).unit == "ms"
