"""The settings of the recipes are the values that the documents give, one case per line of a table."""

import pytest

from tests.five_systems import Cases, by_system, check_values
from vernier import recipes
from vernier.config import Config, derive

SSD: Cases = {
    "2": ("habana-ssd-1", {"optim.lr": 3e-3, "optim.lr_batch": 32, "derived.lr": 0.012}),
    "3": ("habana-ssd-1", {"optim.weight_decay": 5e-4, "optim.decay_rule": "all"}),
    "4": ("habana-ssd-1", {"schedule.warmup_epochs": 5.0, "schedule.warmup_form": "line", "schedule.unit": "step"}),
    "5": ("habana-ssd-1", {"global_batch": 128}),
    "6": ("habana-ssd-1", {"schedule.epochs": 50.0}),
    "10": ("habana-ssd-1", {"schedule.kind": "step", "schedule.milestones": (40.0, 50.0), "schedule.gamma": 0.1}),
    "38": ("habana-ssd-1", {"detect.match": "at-least", "detect.match_iou": 0.5, "detect.contested": "first"}),
}
RESNEXT: Cases = {
    "2": ("habana-tf-resnext101-90e", {"optim.name": "sgd", "optim.momentum": 0.875}),
    "3": ("habana-tf-resnext101-90e", {"optim.lr": 0.256, "optim.lr_batch": 256, "derived.lr": 0.128}),
    "5": ("habana-tf-resnext101-90e", {"schedule.warmup_epochs": 8.0, "schedule.warmup_form": "line"}),
    "6": ("habana-tf-resnext101-90e", {"optim.weight_decay": 6.103515625e-05}),
    "7": ("habana-tf-resnext101-90e", {"loss.label_smoothing": 0.1}),
    "8": ("habana-tf-resnext101-90e", {"optim.decay_rule": "norm-only"}),
    "9": ("habana-tf-resnext101-90e", {"schedule.epochs": 90.0, "schedule.kind": "cosine"}),
    "10": ("habana-tf-resnext101-250e", {"schedule.epochs": 250.0}),
    "14": ("habana-tf-resnext101-90e", {"augment.flip": 0.5, "augment.crop": "random-resized"}),
    "16": ("habana-tf-resnext101-90e", {"model.unused_outputs": 1}),
    "17": ("habana-tf-resnext101-90e", {"model.init": "tf"}),
    "55": ("habana-tf-resnext101-90e-64", {"optim.weight_decay": 7.93e-05, "global_batch": 64 * 128}),
}
NVIDIA: Cases = {
    "3": ("nvidia-resnet50-90e", {"model.init": "fan-in"}),
    "4": ("nvidia-resnet50-90e", {"optim.name": "sgd", "optim.momentum": 0.875}),
    "5": ("nvidia-resnet50-90e", {"optim.lr": 0.256, "optim.lr_batch": 256, "derived.lr": 2.048}),
    "6": ("nvidia-resnet50-90e", {"schedule.kind": "cosine", "schedule.unit": "epoch"}),
    "7": ("nvidia-resnet50-90e", {"global_batch": 2048, "schedule.warmup_epochs": 8.0}),
    "8": ("nvidia-resnet50-90e-4096", {"schedule.warmup_epochs": 16.0}),
    "9": ("nvidia-resnet50-90e", {"optim.weight_decay": 1 / 32768}),
    "10": ("nvidia-resnet50-90e", {"optim.decay_rule": "nvidia-name"}),
    "11": ("nvidia-resnet50-90e", {"loss.label_smoothing": 0.1}),
    "12": ("nvidia-resnet50-50e", {"schedule.epochs": 50.0, "augment.mixup": 0.0}),
    "13": ("nvidia-resnet50-90e", {"schedule.epochs": 90.0, "augment.mixup": 0.0}),
    "14": ("nvidia-resnet50-250e", {"schedule.epochs": 250.0, "augment.mixup": 0.2}),
    "15": ("nvidia-resnet50-90e", {"data.mean": (0.485, 0.456, 0.406), "data.std": (0.229, 0.224, 0.225)}),
    "16": ("nvidia-resnet50-90e", {"data.image_px": 224, "augment.area": (0.08, 1.0), "augment.ratio": (0.75, 4 / 3)}),
    "17": ("nvidia-resnet50-90e", {"augment.flip": 0.5}),
    "18": ("nvidia-resnet50-90e", {"data.eval_short_side_px": 256, "data.eval_px": 224}),
    "90": ("nvidia-resnet50-90e", {"optim.decay_rule": "nvidia-name", "model.init": "fan-in"}),
}
STUDY: Cases = {
    "1": ("study-resnet50", {"model.name": "resnet50", "global_batch": 4 * 64}),
    "5": (
        "study-resnet50",
        {
            "derived.lr": 0.2,
            "optim.momentum": 0.9,
            "optim.weight_decay": 5e-5,
            "loss.label_smoothing": 0.1,
            "loss.smoothing_over": "others",
        },
    ),
}
CASES = by_system(
    {
        "habana-ssd": SSD,
        "habana-resnext101": RESNEXT,
        "nvidia-resnet50": NVIDIA,
        "sc22-study": STUDY,
    }
)


@pytest.mark.parametrize("key", CASES)
def test_recipe_has_the_value_of_the_document(key: str) -> None:
    name, values = CASES[key]
    recipe = recipes.get(name)
    derived = derive(Config(recipe=recipe), train_samples=recipes.train_images(recipe))
    check_values(recipe, derived, values)


PUBLISHED_TOP1 = {
    "nvidia-resnet50-50e": {"mixed": (76.25, 0.04), "fp32": (76.26, 0.07)},
    "nvidia-resnet50-90e": {"mixed": (77.23, 0.04), "fp32": (77.08, 0.07)},
    "nvidia-resnet50-250e": {"mixed": (78.42, 0.04), "fp32": (78.30, 0.16)},
    "nvidia-resnet50-50e-4096": {"mixed": (75.80, 0.08), "fp32": (76.04, 0.05)},
    "nvidia-resnet50-90e-4096": {"mixed": (77.10, 0.06), "fp32": (77.23, 0.04)},
    "nvidia-resnet50-250e-4096": {"mixed": (78.59, 0.13), "fp32": (78.46, 0.03)},
}
"""NVIDIA's accuracy tables of DGX1V and DGX2V, with their deviations."""


@pytest.mark.parametrize("name", PUBLISHED_TOP1)
def test_published_accuracy_is_that_of_the_document(name: str) -> None:
    published = {(p.precision, p.mean, p.sd) for p in recipes.get(name).published if p.metric == "top1"}
    assert {(precision, *pair) for precision, pair in PUBLISHED_TOP1[name].items()} <= published
