"""Boxes of several images in one padded batch, and of a whole set for the evaluator."""

import torch

from vernier.data.loading.targets import BoxTargets


def _boxes(count: int) -> torch.Tensor:
    return torch.tensor([[0.1, 0.2, 0.3, 0.4]]).repeat(count, 1)


def test_images_are_padded_to_the_next_multiple_of_eight() -> None:
    targets = BoxTargets.pad(
        [_boxes(3), _boxes(0), _boxes(9)],
        [torch.tensor([1, 2, 3]), torch.tensor([], dtype=torch.int64), torch.arange(1, 10)],
        samples=[7, 4, 5],
        sizes=[(480, 640), (10, 20), (1, 1)],
    )
    assert len(targets) == 3
    assert targets.ltrb.shape == (3, 16, 4)
    assert targets.valid.sum(1).tolist() == [3, 0, 9]
    assert targets.classes[0].tolist() == [1, 2, 3] + [0] * 13
    assert targets.ltrb[~targets.valid].abs().sum() == 0
    assert targets.sizes[0].tolist() == [480, 640]
    assert targets.samples.dtype == torch.int64


def test_a_batch_without_any_box_still_has_one_padded_block() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    targets = BoxTargets.pad([_boxes(0)], [nothing], samples=[0], sizes=[(8, 8)])
    assert targets.ltrb.shape == (1, 8, 4)
    assert not targets.valid.any()


def test_moving_keeps_every_part() -> None:
    targets = BoxTargets.pad([_boxes(1)], [torch.tensor([1])], samples=[0], sizes=[(8, 8)]).to("meta")
    assert {str(t.device) for t in vars(targets).values()} == {"meta"}
