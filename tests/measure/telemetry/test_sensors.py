from dataclasses import fields

from vernier.measure.telemetry.sensors import FIELDS, open_sensors
from vernier.records.telemetry import Reading


def test_every_field_of_a_reading_is_explained() -> None:
    assert set(FIELDS) == {f.name for f in fields(Reading)}


def test_an_accelerator_without_its_library_is_missing_with_the_reason() -> None:
    sensors, missing = open_sensors("hpu")
    assert [s.kind for s in sensors] == ["cpu"]
    assert any(m.kind == "hpu" and m.sensor == "all" and "pyhlml" in m.why for m in missing)


def test_a_device_kind_without_a_sensor_library_is_missing_too() -> None:
    _, missing = open_sensors("mps")
    assert (missing[0].kind, missing[0].device, missing[0].why) == ("mps", None, "no sensor library is known")
