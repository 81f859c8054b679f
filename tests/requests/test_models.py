"""What the requests about models take."""

import pytest

from vernier.errors import ConfigError
from vernier.requests.declaring import Request
from vernier.requests.models import CreateModel, Evaluate, Export, Load, Predict


@pytest.mark.parametrize(
    ("cls", "values"),
    [
        (Predict, {"images": ("a.jpg",), "min_score": 1.5}),
        (Predict, {"images": ("a.jpg",), "min_score": float("nan")}),
        (Evaluate, {"max_eval_steps": 0}),
        (Evaluate, {"split": "valid"}),
        (Export, {"format": "onn"}),
        (Load, {"engine": "tensorrt"}),
        (CreateModel, {"num_classes": 0}),
        (CreateModel, {"in_channels": 0}),
    ],
)
def test_what_is_out_of_range_or_unknown_is_refused(cls: type[Request], values: dict[str, object]) -> None:
    name = list(values)[-1]
    with pytest.raises(ConfigError) as caught:
        cls(**({"name": "resnet18"} if cls is CreateModel else {"source": "run"}), **values)
    assert name in caught.value.given


def test_options_change_the_settings_they_stand_for() -> None:
    request = Evaluate(source="run", data="photos", flip_tta=True, precision="bf16", mode="compile", workers=0)
    assert request.changes() == {
        "data.source": "photos",
        "eval.flip_tta": True,
        "machine.precision": "bf16",
        "machine.mode": "compile",
        "machine.workers": 0,
    }
    assert Predict(source="run", images=("a.jpg",)).changes() == {}


def test_a_request_crosses_to_other_processes_as_it_is() -> None:
    request = Evaluate(source="w.pth", classes=("cat", "dog"), ema=False, which="all", settings=("data.eval_px=64",))
    assert Evaluate.from_json(request.to_json()) == request
