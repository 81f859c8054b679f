"""Tables and studies of small fleets for tests."""

from pathlib import Path

import numpy as np

from vernier.lab.study.analysis import Measurement, Table
from vernier.lab.study.files import Repeat, StudyDir
from vernier.lab.study.records import StudyDevice, StudyMeta

Values = dict[str, list[float]]


def table(values: Values, **changes: object) -> Table:
    """One row per device and repeat."""
    rows = tuple(
        Measurement(device=device, repeat=str(k), value=value)
        for device, repeats in values.items()
        for k, value in enumerate(repeats)
    )
    return Table(**{"rows": rows, "unit": "s", "what": "median iteration", **changes})  # type: ignore[arg-type]


def machine(rng: np.random.Generator, slow: float = 1.0, repeats: int = 4, devices: int = 4) -> Values:
    """Devices that differ a little; the first is `slow` times as slow."""
    factors = np.exp(rng.normal(0, 0.008, devices))
    factors[0] *= slow
    return {f"gpu{d}": [float(f * np.exp(rng.normal(0, 0.01))) for _ in range(repeats)] for d, f in enumerate(factors)}


def write_study(path: Path, values: Values, seed: int) -> Path:
    """A study of simulated devices on disk."""
    rng = np.random.default_rng(seed)
    devices = tuple(StudyDevice(id=d, index=i, host=path.name, slowdown=1.0) for i, d in enumerate(values))
    meta = StudyMeta(workload="sgemm", iterations=20, repeats=4, devices=devices, simulated=True)
    study = StudyDir.create(path, meta)
    for device, repeats in values.items():
        for k, value in enumerate(repeats):
            seconds = tuple(float(s) for s in value * np.exp(rng.normal(0, 0.001, 21)))
            study.write_repeat(Repeat(device=device, repeat=k, seconds=seconds))
    study.write_tables()
    return path
