from dataclasses import replace

import pytest

from vernier.measure.telemetry.noise import describe_noise, measure_noise, worst_noise
from vernier.records.telemetry import Noise, Sample

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
    text = " ".join(describe_noise(noise))
    assert all(words in text for words in ("0.80 cores", "5.0 %", "thermal", "clock drifted by -"))


def test_a_quiet_machine_gives_no_words_and_what_is_not_measured_is_none() -> None:
    quiet = measure_noise([IDLE], (0.0, 2.0), cores=2)
    assert describe_noise(quiet) == []
    assert (quiet.throttled, quiet.clock_drift_pct, quiet.steal_pct) == (None, None, None)


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
