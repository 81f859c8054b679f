import torch

from vernier.config import Data
from vernier.data.augment.normalize import Normalizer, describe_normalisation


def test_normalisation_is_mean_and_std_of_zero_to_one() -> None:
    data = Data()
    images = torch.randint(0, 256, (1, 5, 6, 3), dtype=torch.uint8).permute(0, 3, 1, 2)
    mean, std = torch.tensor(data.mean).view(3, 1, 1), torch.tensor(data.std).view(3, 1, 1)
    out = Normalizer(data, torch.device("cpu"))(images)
    torch.testing.assert_close(out, (images / 255 - mean) / std)
    assert out.is_contiguous(memory_format=torch.channels_last)


def test_a_normalisation_is_described_by_its_name_or_its_values() -> None:
    assert describe_normalisation(Data()) == "ImageNet mean and std"
    assert describe_normalisation(Data(mean=(0.5,), std=(0.25,))) == "mean 0.5, std 0.25"
