"""`doctor` in Python: the machine, its speed, and its devices."""

from typing import Any

import pytest

import vernier as v
from vernier.lab.machine import probe, trials
from vernier.lab.machine.doctor import DevicesPage, Examination
from vernier.lab.machine.trials import Trial, TriedDevice
from vernier.lab.measured import decode_probe


def test_the_machine_is_examined_with_and_without_its_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    examination = v.doctor(probe=False)
    assert isinstance(examination, Examination)
    assert examination.probe is None
    assert "cpu" in {device.device for device in examination.devices}
    monkeypatch.setattr(decode_probe, "_PX", 64)
    monkeypatch.setattr(probe, "PX", 32)
    monkeypatch.setattr(probe, "CPU_BATCH", 2)
    measured = v.doctor(time="0.1s", quiet=True)
    assert isinstance(measured, Examination)
    assert measured.probe is not None
    assert all(each.images_per_s > 0 for each in measured.probe.training)


def test_devices_are_tried_one_kind_or_all(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    trial = Trial(name="train fp32", outcome="works", seconds=1.0, note="")

    def tried(kinds: tuple[str, ...], on_trial: Any) -> Any:
        on_trial("cpu 0: train fp32")
        if "cpu" in kinds:
            yield TriedDevice(device="cpu", info=None, about="", trials=(trial,))

    monkeypatch.setattr(trials, "try_devices", tried)
    page = v.doctor(test_devices=True)
    assert isinstance(page, DevicesPage)
    assert [device.device for device in page.tried] == ["cpu"]
    assert "cuda" in page.absent
    assert "train fp32" in capsys.readouterr().err
    one = v.doctor(test_devices=True, device="cpu", quiet=True)
    assert isinstance(one, DevicesPage)
    assert one.absent == ()
    assert capsys.readouterr().err == ""
    with pytest.raises(v.ConfigError) as refused:
        v.doctor(test_devices=True, device="mps", quiet=True)
    assert refused.value.given == {"machine.device": "mps"}
