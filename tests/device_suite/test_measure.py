"""Measuring on the device: benchmarks, profiles and studies give figures, and say what they are of."""

from pathlib import Path

from tests.conftest import only_run

from .product import TINY, Product, settings

STEPS = ("--steps", "2", "--repeats", "1")
FEW = (*("--model", "resnet8-small", "--batch", "8", "--json"), *TINY, *settings("machine.threads=1"))


def flags(product: Product, out: Path) -> list[str]:
    return ["--data", str(product.classes), *FEW, "--device", product.device, "--out", str(out)]


def test_bench_train(product: Product, tmp_path: Path) -> None:
    (row,) = product.run("bench", "train", *flags(product, tmp_path), *STEPS).json()["rows"]
    assert row["status"] == "ok"
    assert row["images_per_s_total"]["value"] > 0
    assert {"forward", "backward", "optimizer"} <= set(row["phases"]["seconds"])


def test_bench_infer_in_every_scenario(product: Product, tmp_path: Path) -> None:
    scenarios = ["--scenarios", "offline,single-stream"]
    rows = product.run("bench", "infer", *flags(product, tmp_path), *STEPS, *scenarios).json()["rows"]
    assert [(row["scenario"], row["status"]) for row in rows] == [("offline", "ok"), ("single-stream", "ok")]


def test_profile(product: Product, tmp_path: Path) -> None:
    profile = product.run("profile", *flags(product, tmp_path), "--steps", "2:3").json()
    assert profile["ran"]["device"].startswith(product.device)
    assert list(tmp_path.glob("*/traces/kernels.rank0.csv"))


def test_study(product: Product, tmp_path: Path) -> None:
    out = tmp_path / "study"
    few = ["--workload", "bandwidth", "--iterations", "3", "--repeats", "2", "--kernels", "1", "--pause", "0"]
    product.run("study", "run", *few, "--device", product.device, "--out", str(out))
    assert product.run("study", "analyze", str(out), "--json").json()["devices"]


def test_a_run_is_audited_and_a_device_study_votes(product: Product, tmp_path: Path) -> None:
    often = ("--max-steps", "4", "--train-only", "--set", "audit.every_steps=2", "--set", "checkpoint.every_steps=2")
    product.run(*product.classifier(*often), "--out", str(tmp_path / "runs"))
    audited = product.run("audit", str(only_run(tmp_path / "runs")), "--json").json()
    assert audited["verdict"] == "agrees"
    assert [each["compared"] for each in audited["intervals"]] == [1, 1]
    words = ["study", "run", "--workload", "exact", "--device", product.device, "--virtual", "3", "--repeats", "1"]
    study = str(tmp_path / "study")
    product.run(*words, "--iterations", "4", "--batch", "8", "--kernels", "0", "--pause", "0s", "--out", study)
    (vote,) = product.run("study", "analyze", study, "--json").json()["corruption"]
    assert (vote["devices"], vote["dissents"], vote["no_verdict"]) == (3, [], "")
