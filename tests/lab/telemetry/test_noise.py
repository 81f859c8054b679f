from dataclasses import replace

import pytest

from vernier.lab.records.telemetry import Sample, TelemetryHeader
from vernier.lab.telemetry.noise import measure_noise, worst_noise
from vernier.records.profile import Noise

IDLE = Sample(device_kind="cpu", device=0, t_s=1.0, others_pct=1.0)


def test_disturbances_are_named() -> None:
    samples = [
        Sample(
            device_kind="cpu",
            device=0,
            t_s=float(t),
            others_pct=40.0,
            steal_pct=5.0,
            throttle=("thermal",) if t == 5 else (),
            clock_mhz=3000.0 - 100 * t,
        )
        for t in range(9)
    ]
    noise = measure_noise(samples, (0.0, 10.0), cores=2)
    assert noise.others_cores == pytest.approx(0.8)
    text = " ".join(noise.sentences())
    assert all(words in text for words in ("0.80 cores", "5.0 %", "thermal", "clock drifted by -"))


def test_a_quiet_machine_gives_no_words_and_what_is_not_measured_is_none() -> None:
    quiet = measure_noise([IDLE], (0.0, 2.0), cores=2)
    assert quiet.sentences() == []
    assert (quiet.throttled, quiet.clock_drift_pct, quiet.steal_pct) == (None, None, None)


def test_the_host_does_not_stand_in_for_a_device_without_sensors() -> None:
    hot = Sample(device_kind="cpu", device=0, t_s=1.0, temperature_c=95.0, throttle=("thermal",), clock_mhz=900.0)
    noise = measure_noise([TelemetryHeader(device_kind="cuda"), hot, hot, hot], (0.0, 2.0), cores=2)
    assert (noise.samples, noise.temperature_c_max, noise.throttled, noise.clock_drift_pct) == (3, None, None, None)


def test_clocks_of_different_devices_are_no_drift() -> None:
    steady = [Sample(device_kind="cuda", device=d, t_s=t, clock_mhz=1000.0 + 500 * d) for d in (0, 1) for t in range(3)]
    assert measure_noise(steady, (0, 9)).clock_drift_pct == 0
    slower = [replace(s, clock_mhz=900.0) if (s.device, s.t_s) == (1, 2) else s for s in steady]
    assert measure_noise(slower, (0, 9)).clock_drift_pct == pytest.approx(-40)


def test_samples_outside_of_the_span_do_not_count() -> None:
    busy = replace(IDLE, t_s=5.0, others_pct=90.0)
    assert measure_noise([IDLE, busy], (0.0, 2.0), cores=2).samples == 1


def test_the_worst_of_several_spans_is_the_largest_in_size() -> None:
    calm, throttled = (
        Noise(samples=3, clock_drift_pct=1.0),
        Noise(samples=2, clock_drift_pct=-4.0, throttled=("power",)),
    )
    worst = worst_noise([calm, throttled])
    assert worst == Noise(samples=5, clock_drift_pct=-4.0, throttled=("power",))
    assert worst_noise([]) is None
