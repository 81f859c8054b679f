import pytest

from vernier.cli.bench.options import Target, build_request, parse_layout, parse_list, parse_positive
from vernier.errors import ConfigError
from vernier.records.bench import Layout


def test_lists_are_separated_by_commas_without_duplicates() -> None:
    assert parse_list("--batch", "4, 8,4", parse_positive) == (4, 8)
    assert parse_list("--batch", None, parse_positive) == ()
    for text in ("x", ",", "0"):
        with pytest.raises(ConfigError, match="--batch"):
            parse_list("--batch", text, parse_positive)


def test_a_layout_is_processes_and_threads() -> None:
    assert parse_layout("2x4") == Layout(procs=2, threads=4)
    assert parse_layout("3") == Layout(procs=3)


def test_flags_become_a_request_of_the_recipe() -> None:
    request = build_request(
        "train",
        Target(recipe="shapes-quick", device="cpu", settings=("optim.lr=0.5",)),
        data="synthetic",
        precisions=None,
        modes=None,
        batches="2,4",
        procs="1,2x1",
        global_batch=12,
    )
    assert request.batches == (2, 4)
    assert request.layouts == (Layout(procs=1), Layout(procs=2, threads=1))
    recipe = request.config["recipe"]
    assert (recipe["data"]["source"], recipe["optim"]["lr"], recipe["global_batch"]) == ("synthetic", 0.5, 12)
