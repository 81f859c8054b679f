"""The plots of the documents are on the report page, drawn from files that hold their columns."""

import json
from pathlib import Path

import pytest

from vernier.report.page.build import build
from vernier.report.page.collect import collect

EPOCHS = 3


@pytest.fixture
def raport(tmp_path: Path) -> Path:
    """A raport.json as NVIDIA's script of 2019 writes it, with three epochs of four iterations."""
    path = tmp_path / "raport.json"
    losses = [[5.0 - epoch - i / 10 for i in range(4)] for epoch in range(EPOCHS)]
    iterations = {"train.loss": losses}
    for name, value in {"compute_time": 0.2, "data_time": 0.01, "compute_ips": 1280.0, "total_ips": 1219.0}.items():
        iterations[f"train.{name}"] = [[value] * 4 for _ in range(EPOCHS)]
    epochs = {"train.loss": [4.85, 3.85, 2.85], "val.top1": [40.0, 60.0, 70.0], "val.top5": [65.0, 80.0, 90.0]}
    tree = {"run": {"arch": "resnet50", "batch_size": 256}, "epoch": epochs, "iter": iterations, "event": {}}
    path.write_text(json.dumps(tree))
    return path


def test_the_page_draws_loss_top_1_and_top_5_of_nvidias_log(raport: Path) -> None:
    figures = build(collect([raport])).figures
    assert {"loss", "accuracy"} <= set(figures)
    accuracy = figures["accuracy"].rows
    assert [row[5] for row in accuracy if row[4] == "top-1"] == [40.0, 60.0, 70.0]
    assert [row[5] for row in accuracy if row[4] == "top-5"] == [65.0, 80.0, 90.0]


def test_the_page_draws_cabinets_and_sensors_of_a_study(tmp_path: Path) -> None:
    """Boxes by cabinet, and step time against clock, power and temperature."""
    path = tmp_path / "fleet.csv"
    rows = [
        f"u{d},c00{d // 4},{d},{100 + d + r / 10},{1500 - d},{250 + d},{50 + d}" for d in range(12) for r in range(3)
    ]
    path.write_text("\n".join(["uuid,cabinet,node,perf_ms,freq,pwr,temp", *rows]) + "\n")
    figures = build(collect([path])).figures
    assert {"cabinet-0", "against-freq-0", "against-power-0", "against-temp-0", "correlation-0"} <= set(figures)
    assert {row[0] for row in figures["cabinet-0"].rows} == {"c000", "c001", "c002"}
    assert len(figures["against-temp-0"].rows) >= 12
