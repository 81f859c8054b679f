"""Messages of the command line in the words of Python."""

import traceback

import pytest

from vernier.api.words import errors_in_python_words, python_words
from vernier.errors import ConfigError, NoSuchSplit, RunFailed


@pytest.mark.parametrize(
    ("message", "translated"),
    [
        ("--lr -1 is out of range: it must be above 0.", "lr=-1 is out of range: it must be above 0."),
        ("Leave out --data, or give --classes FILE.", "Leave out data, or give classes=FILE."),
        ("--resume never starts another run.", 'resume="never" starts another run.'),
        ("Give --reset-head to keep the rest.", "Give reset_head=True to keep the rest."),
        ("--no-ema takes the raw ones", "ema=False takes the raw ones"),
        (
            "give --set model.width=32 --set model.stem=imagenet.",
            'give settings={"model.width": 32, "model.stem": "imagenet"}.',
        ),
        ("--set eval.target_top1=none trains on", 'settings={"eval.target_top1": None} trains on'),
        ("Give --set data.mean=[...] with 3.", 'Give settings={"data.mean": [...]} with 3.'),
        ("Name it with --columns step_time=...,device=...;", 'Name it with columns={"step_time": ..., "device": ...};'),
        ("--precision tf32: use --precision fp32.", 'precision="tf32": use precision="fp32".'),
        ("saved, run the same command to resume", "saved, repeat the same call to resume"),
        ("e.g. --max-time 3h50m.", 'e.g. max_time="3h50m".'),
    ],
)
def test_flags_become_keyword_arguments(message: str, translated: str) -> None:
    assert python_words(message) == translated


def test_commands_stay_commands() -> None:
    for message in (
        "Did you mean resnet50? `vernier models` lists all.",
        "vernier train RECIPE --resume x.pth (see `vernier recipes`).",
        "bench the network by its name, such as vernier bench infer resnet50 --batch 8.",
    ):
        assert python_words(message) == message


def test_errors_keep_their_kind_and_lose_our_frames() -> None:
    @errors_in_python_words
    def fail(kind: type[Exception]) -> None:
        raise kind("Leave out --data.")

    for kind in (ConfigError, NoSuchSplit, RunFailed):
        with pytest.raises(kind, match=r"^Leave out data\.$") as caught:
            fail(kind)
        assert type(caught.value) is kind
        assert caught.value.__suppress_context__
        assert [entry.name for entry in traceback.extract_tb(caught.value.__traceback__)][1:] == ["call"]


def test_other_errors_are_left_alone() -> None:
    @errors_in_python_words
    def fail() -> None:
        raise KeyError("--data")

    with pytest.raises(KeyError, match="--data"):
        fail()
