"""Names that people type out of habit."""

import pytest

from vernier.cli.usage.aliases import in_typed_words, with_own_names
from vernier.errors import ConfigError

TRAIN = {"--global-batch", "--lr", "--procs", "--device", "--mode", "--set", "--smoke", "--ema", "--no-ema"}
BENCH = {"--batch", "--procs", "--device", "--mode", "--precision"}


@pytest.mark.parametrize(
    ("typed", "flags", "words"),
    [
        ("--batch-size 64", TRAIN, "--global-batch 64"),
        ("--batch 64", TRAIN, "--global-batch 64"),
        ("--batch_size=64", TRAIN, "--global-batch=64"),
        ("--batches 1,2", BENCH, "--batch 1,2"),
        ("--device-batch 8", BENCH, "--batch 8"),
        ("--learning-rate 0.1 --gpus 2", TRAIN, "--lr 0.1 --procs 2"),
        ("--precisions fp32 --modes eager,graph", BENCH, "--precision fp32 --mode eager,compile"),
        ("--device gpu --mode=graph", TRAIN, "--device cuda --mode=compile"),
        ("--device gaudi --device=rocm", TRAIN, "--device hpu --device=cuda"),
        ("gpu --out gpu", TRAIN, "gpu --out gpu"),
        ("--no-smoke --no-ema", TRAIN, "--no-ema"),
        ("-- --batch-size", TRAIN, "-- --batch-size"),
        ("--set a.b=1 --set=c_d=--batch", TRAIN, "--set a.b=1 --set=c_d=--batch"),
    ],
)
def test_an_alias_becomes_the_flag_of_the_command(typed: str, flags: set[str], words: str) -> None:
    assert with_own_names(typed.split(), flags, {"--smoke", "--ema", "--no-ema"}) == words.split()


@pytest.mark.parametrize("typed", ["--set optim.lr = 0.1", "--set optim.lr= 0.1", "--set optim.lr =0.1"])
def test_spaces_around_an_equals_sign_are_explained(typed: str) -> None:
    with pytest.raises(ConfigError, match=r"--set optim\.lr=0\.1\."):
        with_own_names(typed.split(), TRAIN, ())


@pytest.mark.parametrize(
    ("typed", "message", "words"),
    [
        ("--batch-size x", "--batch takes N.", "--batch-size takes N."),
        ("--batch x", "--batch takes N.", "--batch takes N."),
        ("--batch-size x", "--batch-norm is another.", "--batch-norm is another."),
        ("--gpus=3", "Change --procs or --procs.", "Change --gpus or --procs."),
        ("--gpus=3", "--gpus is known.", "--gpus is known."),
    ],
)
def test_a_message_names_the_flag_that_was_typed(typed: str, message: str, words: str) -> None:
    assert in_typed_words(message, typed.split(), BENCH) == words


def test_the_number_of_a_device_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"--device cuda.*CUDA_VISIBLE_DEVICES"):
        with_own_names(["--device", "gpu:1"], TRAIN, ())
