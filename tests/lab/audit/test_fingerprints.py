"""Fingerprints: equal for equal bits, different for any change, and independent of memory formats and of a flush."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

from vernier.devices.cpu import Cpu
from vernier.lab.audit.fingerprints import COLUMNS, Fingerprints, combine, fingerprint

SIZES = (1, 3, COLUMNS - 1, COLUMNS, COLUMNS + 1, 3 * COLUMNS + 5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_any_single_flipped_bit_changes_it(size: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    tensor = (torch.randn(size, generator=generator) * 100).to(dtype)
    before, seen = fingerprint(tensor), set[int]()
    bits = tensor.view(torch.uint8)
    rng = np.random.default_rng(2)
    for _ in range(200):
        at, bit = int(rng.integers(len(bits))), 1 << int(rng.integers(8))
        bits[at] ^= bit
        seen.add(fingerprint(tensor))
        bits[at] ^= bit
    assert before not in seen
    assert fingerprint(tensor) == before


@pytest.mark.parametrize("size", SIZES[1:])
def test_swapped_elements_change_it(size: int) -> None:
    tensor = torch.arange(size, dtype=torch.float32)
    rng, before = np.random.default_rng(3), fingerprint(tensor)
    for _ in range(200):
        i, j = rng.choice(size, 2, replace=False)
        swapped = tensor.clone()
        swapped[i], swapped[j] = tensor[j], tensor[i]
        assert fingerprint(swapped) != before


def test_it_is_that_of_the_formula() -> None:
    """The published definition, without the sums on the device: other versions must give the same."""
    tensor = torch.arange(2 * COLUMNS + 7, dtype=torch.int32) * -1234567

    def random(count: int, stream: int) -> list[int]:
        numbers, mask = [], 2**64 - 1
        for i in range(1, count + 1):
            z = (i + (stream << 40)) * 0x9E3779B97F4A7C15 & mask
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
            z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
            numbers.append(z ^ z >> 31)
        return numbers

    rows, columns = [0, 0, 0], [0] * COLUMNS
    for position, word in enumerate(tensor.tolist()):
        rows[position // COLUMNS] += word
        columns[position % COLUMNS] += word
    odd, even = random(3, 1), random(COLUMNS, 2)
    total = sum(r % 2**32 * (w | 1) for r, w in zip(rows, odd, strict=True))
    total += sum(c % 2**32 * (w << 1) for c, w in zip(columns, even, strict=True))
    assert fingerprint(tensor) == total % 2**64


def test_memory_formats_do_not_count() -> None:
    tensor = torch.randn(64, 32, 3, 3)
    assert fingerprint(tensor) == fingerprint(tensor.to(memory_format=torch.channels_last))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8])
def test_a_view_that_begins_within_a_word_is_like_its_copy(dtype: torch.dtype) -> None:
    view = torch.arange(11).to(dtype)[1:]
    assert fingerprint(view) == fingerprint(view.clone())


def test_what_nobody_reads_does_not_fill_the_device() -> None:
    model = nn.Linear(4, 4)
    watch = Fingerprints(model, torch.optim.SGD(model.parameters(), lr=0.1), Cpu(), every_steps=1)
    for step in range(1, 101):
        watch.take_gradients(step, {})
        watch.take_state(step)
    assert len(watch._taken) <= 32
    assert [event.step for event in watch.pop()] == list(range(1, 101))


def test_several_are_told_apart_by_their_order() -> None:
    assert combine([1, 2]) != combine([2, 1])
    assert combine([]) == 0


def test_what_is_taken_stays_when_training_goes_on() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 64, 9), nn.BatchNorm2d(64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def train(read_at: set[int]) -> list[dict[str, object]]:
        torch.manual_seed(1)
        events = []
        watch = Fingerprints(model, optimizer, Cpu(), every_steps=2)
        for step in range(1, 7):
            model(torch.randn(2, 3, 12, 12)).square().mean().backward()
            watch.take_gradients(step, {})
            optimizer.step()
            optimizer.zero_grad()
            watch.take_state(step)
            if step in read_at:
                events += watch.pop()
        return [{**vars(event), "seconds": None} for event in [*events, *watch.pop()]]

    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    late = train(read_at=set())
    model.load_state_dict(start)
    optimizer.state.clear()
    assert late == train(read_at={1, 2, 3, 4, 5, 6})
    assert [event["step"] for event in late] == [2, 4, 6]
    assert all(
        a[kind] != b[kind] for a, b in pairwise(late) for kind in ("weights", "gradients", "optimizer", "statistics")
    )
