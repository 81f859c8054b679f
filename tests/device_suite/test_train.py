"""Training on the device: the CPU's weights, interruptions, precisions, modes and several processes."""

import random
from pathlib import Path

import pytest

from tests.conftest import only_run
from tests.rgpu import RgpuServer

from .product import Product, compilations, interrupt, kill, settings, state, terminate

TOLERANCE = 0.01
"""Largest distance between the device's weights and the CPU's, as a share of the distance they were trained."""


def test_a_classifier_with_everything_trains_to_the_weights_of_the_cpu(product: Product) -> None:
    assert product.agree("everything", lambda device: product.everything(device=device)) < TOLERANCE


def test_a_detector_trains_to_the_weights_of_the_cpu(product: Product) -> None:
    assert product.agree("detector", lambda device: product.detector(device=device)) < TOLERANCE


@pytest.mark.parametrize(("name", "loss"), [("lars", "cross-entropy"), ("lamb", "bce"), ("adamw", "bce")])
def test_other_optimizers_train_to_the_weights_of_the_cpu(product: Product, name: str, loss: str) -> None:
    chosen = settings(f"optim.name={name}", f"loss.kind={loss}", "optim.nesterov=false")
    more = ["--max-steps", "3", "--train-only", *chosen]
    assert product.agree(name, lambda device: product.classifier(*more, device=device)) < TOLERANCE


def test_two_processes_train_to_the_weights_of_two_processes_on_the_cpu(product: Product) -> None:
    more = ["--max-steps", "3", "--train-only", "--procs", "2"]
    devices = [device for device in product.examination()["devices"] if device["device"] == product.device]
    if len(devices) < 2 and not product.shared:
        refused = product.run(*product.classifier(*more, "--out", str(product.folder / "two")), code=2)
        assert "needs its own" in refused.err
        pytest.skip("one device: two processes are refused, as they must be")
    assert product.agree("two", lambda device: product.classifier(*more, device=device)) < TOLERANCE


def test_killed_and_stopped_it_resumes_to_the_same_bits(product: Product, tmp_path: Path) -> None:
    """SIGKILL after a random step, SIGTERM after another one, then to the end."""
    if not product.deterministic:
        pytest.skip(f"{product.device} does not guarantee that a run repeats bit for bit")
    whole = product.trained(f"everything-{product.device}", product.everything())
    arguments, dice = product.everything(), random.Random(20261116)
    killed = interrupt(
        arguments, tmp_path, after_steps=dice.randrange(2, 5), environment=product.environment, strike=kill
    )
    assert killed.code == -9, killed.err
    stopped = interrupt(arguments, tmp_path, after_steps=1, environment=product.environment, strike=terminate)
    assert stopped.code == 75, stopped.err
    assert "run the same command to resume" in stopped.err
    resumed = product.run(*arguments, "--out", str(tmp_path))
    assert "resuming from step" in resumed.err
    assert state(only_run(tmp_path)) == state(whole)


@pytest.mark.parametrize(
    "changes",
    [
        ("augment.mixup=0.2", "augment.cutmix=1", "ema.decay=0.9", "optim.clip_norm=1"),
        ("optim.name=lars", "optim.nesterov=false", "schedule.warmup_epochs=0.5"),
        ("optim.name=lamb", "loss.kind=bce", "optim.nesterov=false", "machine.precision=bf16"),
        ("optim.name=adamw", "loss.kind=bce", "optim.nesterov=false", "machine.accumulation=2", "augment.mixup=0.2"),
    ],
    ids=lambda changes: changes[0],
)
def test_nothing_is_compiled_once_each_kind_of_step_was_seen(
    product: Product, changes: tuple[str, ...], tmp_path: Path
) -> None:
    """Steps 1 to 3 compile: neither a box of CutMix nor a learning rate is part of a program."""
    out = ["--train-only", "--max-steps", "9", "--allow-slow", "--out", str(tmp_path)]
    product.run(*product.classifier(*settings(*changes), *out))
    by_step = compilations(only_run(tmp_path))
    assert sorted(by_step) == list(range(1, 10))
    # Each kind of mixing is drawn by then; the first step differs from later ones by what the optimizer has not yet.
    assert {step: graphs for step, graphs in by_step.items() if graphs and step > 3} == {}


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_a_precision_trains_or_is_refused_with_an_alternative(product: Product, precision: str, tmp_path: Path) -> None:
    trains_or_is_refused(product, tmp_path, precision=precision)


@pytest.mark.parametrize("mode", ["compile", "trace"])
def test_a_mode_trains_and_evaluates_or_is_refused_with_an_alternative(
    product: Product, mode: str, tmp_path: Path
) -> None:
    trains_or_is_refused(product, tmp_path, mode=mode)


def trains_or_is_refused(product: Product, out: Path, *, precision: str = "fp32", mode: str = "eager") -> None:
    answer = product.ability(precision, mode)
    flags = ["--max-steps", "2", "--precision", precision, "--mode", mode, "--out", str(out)]
    if answer["verdict"] == "yes":
        done = product.run(*product.classifier(*flags, "--json"))
        assert done.json()["result"]["loss"] > 0
        return
    done = product.run(*product.classifier(*flags), code=2)
    assert answer["why"] in done.err
    assert answer["instead"] in done.err
    assert not list(out.iterdir())


def test_an_unknown_precision_and_a_misspelt_device_are_refused(product: Product, tmp_path: Path) -> None:
    unknown = product.run(*product.classifier("--precision", "fp7", "--out", str(tmp_path)), code=2)
    assert "fp7" in unknown.err
    misspelt = product.run(*product.classifier("--out", str(tmp_path), device=f"{product.device}x"), code=2)
    assert f"--device {product.device}x is not known" in misspelt.err
    assert product.device in misspelt.err.split("Did you mean")[1]
    assert not list(tmp_path.iterdir())


@pytest.fixture
def other_server(product: Product) -> RgpuServer:
    if product.device != "rgpu":
        pytest.skip(f"{product.device} has no server that a test could end")
    return RgpuServer()


def test_a_device_that_dies_is_an_error_and_the_same_command_resumes(
    product: Product, other_server: RgpuServer, tmp_path: Path
) -> None:
    whole = product.trained(f"everything-{product.device}", product.everything())
    arguments = product.everything()
    lost = interrupt(
        arguments,
        tmp_path,
        after_steps=2,
        environment=other_server.environment,
        strike=lambda _: other_server.stop(),
    )
    assert lost.code == 1, lost.err
    assert "The device rgpu does not answer" in lost.err
    assert "Run the same command to resume" in lost.err
    assert "Traceback" not in lost.err
    gone = product.run(*arguments, "--out", str(tmp_path), code=1, environment=other_server.environment)
    assert "The device rgpu does not answer" in gone.err
    assert "Traceback" not in gone.err
    assert "resuming from step" in product.run(*arguments, "--out", str(tmp_path)).err
    assert state(only_run(tmp_path)) == state(whole)
