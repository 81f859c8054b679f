from collections.abc import Callable

from tests.conftest import Done
from vernier.records.bench import BenchRequest, Layout


def test_train_measures_every_batch_and_precision(
    vernier_here: Callable[..., Done], bench_requests: list[BenchRequest]
) -> None:
    vernier_here("bench", "train", "--batch", "1,8", "--precision", "fp32,bf16", "--procs", "2", "--data", "static")
    (request,) = bench_requests
    assert (request.what, request.batches, request.precisions) == ("train", (1, 8), ("fp32", "bf16"))
    assert request.layouts == (Layout(procs=2),)
    assert request.config["recipe"]["data"]["source"] == "static"
    assert request.config["recipe"]["eval"]["every_epochs"] == 0


def test_scaling_adds_layouts_without_exchange_where_several_processes_would_exchange(
    vernier_here: Callable[..., Done], bench_requests: list[BenchRequest]
) -> None:
    vernier_here("bench", "scaling", "--procs", "1x1,2x1", "--apart", "--batch", "12", "--strong")
    (request,) = bench_requests
    layouts = (Layout(procs=1, threads=1), Layout(procs=2, threads=1), Layout(procs=2, threads=1, apart=True))
    assert (request.scaling, request.layouts) == ("strong", layouts)
    assert request.config["recipe"]["global_batch"] == 12


def test_threads_are_given_with_all_layouts_or_with_none(vernier_here: Callable[..., Done]) -> None:
    done = vernier_here("bench", "scaling", "--procs", "1x1,2")
    assert done.code == 2
    assert "give threads with all of them" in done.err
