"""The predicted peak of a training, and what is refused, warned about and advised where it does not fit."""

import re
from typing import Any

import pytest

from vernier import recipes
from vernier.config import Config, Derived, derive, override
from vernier.errors import TooLittleMemory
from vernier.measure.explain import _describe_memory
from vernier.measure.memory import FreeMemory, KnownData, check_memory, predict_memory

GIB = 2**30
CPU = KnownData(on_cpu=True, val_images=0)


def configured(**changes: Any) -> tuple[Config, Derived]:
    config = recipes.load("nvidia-resnet50-90e")
    for name, value in {"global_batch": 64, **changes}.items():
        config = override(config, name, value)
    return config, derive(config, train_samples=100_000)


def peak(known: KnownData = CPU, **changes: Any) -> int:
    return predict_memory(*configured(**changes), known).peak_bytes


def refusal(free: FreeMemory, held: int = 0, known: KnownData = CPU, **changes: Any) -> str:
    with pytest.raises(TooLittleMemory) as error:
        check_memory(*configured(**changes), free, held, known)
    return str(error.value)


def test_what_makes_the_peak_larger_and_smaller() -> None:
    usual = peak()
    assert peak(global_batch=128) > 1.9 * usual
    assert peak(**{"ema.decay": 0.99}) - usual == 4 * 25_557_032
    for name, more in {"lamb": 1, "adamw": 1, "lars": 0, "muon": 0}.items():
        assert peak(**{"optim.name": name}) - usual == more * 4 * 25_557_032, name
    assert peak(**{"machine.precision": "bf16"}) < 0.65 * usual
    assert peak(**{"machine.activation_checkpointing": True}) < 0.5 * usual
    assert 1.05 * usual < peak(**{"machine.convolution": "winograd"}) < 1.3 * usual
    assert peak(**{"machine.process_batch": 16}) < 0.35 * usual
    assert peak(KnownData(on_cpu=False, val_images=0)) < usual
    assert peak(KnownData(on_cpu=True, cached_bytes=GIB, val_images=0)) - usual == GIB


def test_an_evaluation_can_be_the_peak() -> None:
    config, derived = configured(global_batch=2)
    prediction = predict_memory(config, derived, KnownData(on_cpu=True, val_images=50_000))
    assert prediction.in_evaluation
    assert "in evaluation" in _describe_memory(prediction)
    assert not predict_memory(config, derived, KnownData(on_cpu=True, val_images=8)).in_evaluation
    message = refusal(FreeMemory(bytes=2 * GIB), known=KnownData(on_cpu=True, val_images=50_000), global_batch=2)
    assert "An evaluation needs about" in message
    assert "machine.eval_batch=64" in message


def test_the_parts_add_up() -> None:
    prediction = predict_memory(*configured(), CPU)
    parts = (prediction.weights_bytes, prediction.activations_bytes, prediction.data_bytes, prediction.process_bytes)
    assert prediction.peak_bytes == sum(parts)


def test_a_refusal_names_the_largest_batch_that_fits_and_how_to_set_it() -> None:
    message = refusal(FreeMemory(bytes=4 * GIB))
    largest = int(re.search(r"fits is (\d+) images", message)[1])  # type: ignore[index]
    assert peak(global_batch=largest) <= 4 * GIB < peak(global_batch=largest + 1)
    part = int(re.search(r"machine\.process_batch=(\d+)", message)[1])  # type: ignore[index]
    assert part <= largest
    assert 64 % part == 0
    check_memory(*configured(**{"machine.process_batch": part}), FreeMemory(bytes=4 * GIB), 0, CPU)
    assert "machine.activation_checkpointing=true needs about" in message
    assert "machine.check_memory=false" in message


def test_processes_share_the_memory_and_have_some_already() -> None:
    assert "shared by 4 processes" in refusal(FreeMemory(bytes=8 * GIB, processes=4))
    check_memory(*configured(), FreeMemory(bytes=8 * GIB, processes=4), 10 * GIB, CPU)


def test_exact_reduction_divides_its_batch_otherwise() -> None:
    message = refusal(FreeMemory(bytes=2 * GIB), **{"machine.reduction": "exact", "virtual_shards": 2})
    shards = int(re.search(r"virtual_shards=(\d+)", message)[1])  # type: ignore[index]
    assert shards > 2
    assert 64 % shards == 0


def test_nothing_fits() -> None:
    assert "not even one image per process fits" in refusal(FreeMemory(bytes=2**20))


def test_only_what_surely_fails_is_refused_and_what_may_fail_is_a_warning() -> None:
    needed = peak()
    assert check_memory(*configured(), FreeMemory(bytes=int(1.2 * needed)), 0, CPU) == ""
    for share in (0.9, 1.1):
        warning = check_memory(*configured(), FreeMemory(bytes=int(share * needed)), 0, CPU)
        assert "If memory runs out" in warning
    refusal(FreeMemory(bytes=int(0.8 * needed)))


def test_it_can_be_tried_anyway() -> None:
    config, derived = configured(**{"machine.check_memory": False})
    assert "If memory runs out" in check_memory(config, derived, FreeMemory(bytes=GIB), 0, CPU)


def test_cached_images_refuse_nothing() -> None:
    known = KnownData(on_cpu=True, cached_bytes=100 * GIB, val_images=0)
    assert "If memory runs out" in check_memory(*configured(), FreeMemory(bytes=2 * peak()), 0, known)


def test_frozen_layers_keep_nothing() -> None:
    usual = peak()
    first = peak(**{"model.freeze": ("conv1", "bn1", "layer1")})
    head = peak(**{"model.freeze": ("backbone",)})
    assert head < first < 0.75 * usual
    assert peak(**{"model.freeze": ("layer1",)}) == usual  # gradients pass through it on their way to the stem
