"""What `profile` takes."""

from vernier.cli.parser import parse
from vernier.lab.requests.profiling import ProfileInfer, ProfileTrain


def test_steps_have_an_old_name_and_other_options_are_settings() -> None:
    request, _ = parse(ProfileTrain, ["resnet50", "--steps", "2:3", "--batch", "8", "--mode", "graph"], "profile train")
    assert request == ProfileTrain(recipe="resnet50", range="2:3", batch=8, mode="compile")
    assert request.changes() == {"global_batch": 8, "machine.mode": "compile"}


def test_the_batch_of_inference_is_that_of_evaluation() -> None:
    assert ProfileInfer(batch=8).changes() == {"machine.eval_batch": 8}
    assert ProfileInfer().range == "11:15"
