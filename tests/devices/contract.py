"""What every device must do, whether it is here or replaced by a fake."""

from vernier.devices.base import MODES, PRECISIONS, Device


def check_contract(device: Device, count: int) -> None:
    assert type(device).available()
    assert device.count() == count
    rows = device.identity()
    assert [row.index for row in rows] == list(range(count))
    assert all(row.name for row in rows)
    assert device.torch_device(0).type == device.name
    device.synchronize()
    device.mark_step()
    device.reset_peak_memory()
    memory = device.memory()
    assert memory is not None
    assert 0 < memory.allocated_bytes <= memory.peak_bytes
    for precision in PRECISIONS:
        for mode in MODES:
            answer = device.answer(precision, mode)
            assert (answer.verdict == "yes") == (not answer.why)
            assert bool(answer.why) == bool(answer.instead)
