"""Benchmarks and profiles measure what their command says, say what that was, and take as long as they promise."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TINY, Done, only_run
from tests.lab.bench.sample_rounds import rounds
from tests.tiny_training import tiny_config
from vernier.config import Augment, Config, config_from_tree, override, to_dict
from vernier.engine.processes.launch import Topology
from vernier.engine.processes.world import World
from vernier.lab.api import profiling
from vernier.lab.api.benchmarks import build_request
from vernier.lab.bench import configurations, measuring, table
from vernier.lab.bench import session as bench_session
from vernier.lab.bench.rows import pool_rounds
from vernier.lab.measured import profile_run
from vernier.lab.measured.process import run_request
from vernier.lab.measured.workloads import InferenceLoad, TrainingLoad
from vernier.lab.records.bench import BenchRequest, ConfigurationLabels, ProfileRequest
from vernier.lab.requests.benchmarks import BenchTrain
from vernier.store import RunDir

Vernier = Callable[..., Done]
SMALL = [word for word in TINY if word not in ("--global-batch", "16")]


@pytest.fixture
def request_of(vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch) -> Callable[..., BenchRequest]:
    """The request that a command makes; nothing is measured."""
    requests: list[BenchRequest] = []

    def run_bench(request: BenchRequest, *_: object) -> None:
        requests.append(request)
        raise KeyboardInterrupt

    monkeypatch.setattr("vernier.lab.api.benchmarks.run_bench", run_bench)

    def run(*arguments: str) -> BenchRequest:
        done = vernier_here("bench", *arguments)
        assert requests, done.err
        return requests.pop()

    return run


def configs_of(request: BenchRequest) -> list[Config]:
    return [
        config_from_tree(configuration.request.config) for configuration in configurations.configurations_of(request)
    ]


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configurations are measured here, which saves starting a process."""
    monkeypatch.setattr(
        bench_session, "run_in_process", lambda configuration, *_: run_request(configuration.request, World(Topology()))
    )


@pytest.mark.parametrize("arguments", [["--model", "resnet50", "--data", "synthetic"], ["resnet50"]])
def test_bench_infer_of_resnet50_measures_the_published_resnet50(
    request_of: Callable[..., BenchRequest], arguments: list[str]
) -> None:
    """README's `bench infer --model resnet50 --data synthetic` measured a half-width network at 64 pixels."""
    (config,) = configs_of(request_of("infer", *arguments, "--batch", "1"))
    load = InferenceLoad(override(config, "machine.threads", 1))
    try:
        assert sum(p.numel() for p in load._model.parameters()) == 25_557_032
        assert next(load._batches).images.shape == (1, 3, 224, 224)
        ran = load.what_ran()
        assert (ran.network, ran.parameters, ran.image_px) == ("resnet50", 25_557_032, 224)
    finally:
        load.close()


@pytest.mark.parametrize("what", ["infer", "train"])
def test_the_model_of_a_run_is_measured(
    what: str, request_of: Callable[..., BenchRequest], vernier_here: Vernier, tiny: list[str], tmp_path: Path
) -> None:
    """`bench infer RUN` said that there is no such recipe, and `v.bench(RUN)` worked."""
    assert vernier_here("train", *tiny, "--max-steps", "1", "--train-only").code == 0
    (config,) = configs_of(request_of(what, str(only_run(tmp_path / "runs")), "--batch", "4"))
    assert (config.recipe.model.name, config.recipe.model.width) == ("resnet8-small", 8)


@pytest.mark.parametrize("command", [["train"], ["scaling", "--procs", "1"]])
def test_a_network_is_taken_where_a_recipe_is_expected(
    request_of: Callable[..., BenchRequest], command: list[str]
) -> None:
    """`bench train resnet50` said that there is no such recipe."""
    by_name, by_flag = (
        request_of(*command, *words).config["recipe"] for words in (["resnet50"], ["--model", "resnet50"])
    )
    assert by_name == by_flag
    assert (by_name["name"], by_name["model"]["name"], by_name["data"]["image_px"]) == ("resnet50", "resnet50", 224)


def test_a_recipe_whose_images_grow_is_measured_at_its_last_size_and_counted_at_that_size(
    shapes: Path, vernier_here: Vernier
) -> None:
    """`bench train ffcv-*` measured 160 px and counted the operations of 192 px: 1.44 times too many."""
    growing = tiny_config(shapes, augment=Augment(crop="pad", start_px=16, ramp_epochs=(1.0, 2.0)))
    (config,) = configs_of(BenchRequest(what="train", config=to_dict(growing)))
    sizes, operations = [], []
    for measured in (config, growing, tiny_config(shapes)):
        load = TrainingLoad(measured)
        try:
            sizes.append(next(load._batches).images.shape[-1])
            operations.append(load.flops_per_image())
        finally:
            load.close()
    assert sizes == [32, 16, 32]
    assert operations[0] == operations[2]
    assert operations[1] < 0.3 * operations[0]  # of a step that really is at 16 px, not the last size


def test_the_default_batch_fits_one_device_and_is_named(request_of: Callable[..., BenchRequest]) -> None:
    """`bench train nvidia-resnet50-90e` took the global batch of 2,048 for one device, and no help said so."""
    request = request_of("train", "nvidia-resnet50-90e", "--device", "cpu")
    (config,) = configs_of(request)
    assert config.recipe.global_batch == 32
    assert request.config["recipe"]["global_batch"] == 32
    assert any("batch 32" in note and "2,048" in note for note in request.notes or ())
    (config,) = configs_of(request_of("infer", "resnet50", "--device", "cpu"))
    assert config.machine.eval_batch == 32
    (config,) = configs_of(request_of("train", "nvidia-resnet50-90e", "--set", "global_batch=64"))
    assert config.recipe.global_batch == 64  # what a person sets is taken


def test_the_page_of_an_inference_benchmark_shows_no_global_batch(
    vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The settings of `bench infer --batch 1,2` said global_batch 2048."""
    in_this_process(monkeypatch)
    flags = ["--batch", "1,2", "--steps", "2", "--repeats", "1", "--max-seconds", "1", "--out", str(tmp_path)]
    done = vernier_here("bench", "infer", *SMALL, "--data", "synthetic", "--set", "global_batch=2048", *flags)
    assert done.code == 0, done.err
    page = tmp_path / "page.html"
    assert vernier_here("report", str(only_run(tmp_path)), "-o", str(page)).code == 0
    assert "global_batch" not in page.read_text()
    assert "1, 2" in page.read_text()


def test_the_result_begins_with_what_ran_and_ends_with_where_the_time_went(
    vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The table had no network, size, data or device; `bench train` measured synthetic images without a word."""
    in_this_process(monkeypatch)
    flags = ["--batch", "2,4", "--steps", "2", "--repeats", "1", "--max-seconds", "1", "--out", str(tmp_path)]
    done = vernier_here("bench", "train", *SMALL, *flags)
    assert done.code == 0, done.err
    line = done.out.splitlines()[0]
    for words in ("train resnet8-small, width 8", "M parameters", " 32 px", "1,000 classes", "batch 2, 4 x 1 device"):
        assert words in line
    assert "synthetic, random pixels copied from memory by 2 loader threads" in line
    assert "fp32 eager · cpu" in line
    assert line in (only_run(tmp_path) / "bench.md").read_text()
    assert "\n- time: " in done.out
    assert "about" in done.err or "steps each" in done.err


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class SlowLoad:
    """A step takes four seconds, as ResNet-50 with 16 images on two busy cores."""

    images, devices = 16, 1

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def step(self) -> float:
        self._clock.now += 4.0
        return 0.0

    def split(self, steps: int) -> dict[str, list[float]]:
        self._clock.now += 4.0 * steps
        return {"forward": [4.0] * steps}


def test_a_process_takes_at_most_twice_its_measuring_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """`bench train ... --repeats 2 --max-seconds 20` promised 40 s and took 4 minutes."""
    clock = Clock()
    monkeypatch.setattr(measuring, "now_s", clock)
    with contextlib.suppress(ImportError):
        from vernier.lab.bench import progress

        monkeypatch.setattr(progress, "now_s", clock)
    plan = build_request(BenchTrain(data="synthetic", max_time="20s")).plan
    start_up_s = 6.0
    began_s = clock.now
    samples = measuring.measure(SlowLoad(clock), replace(plan, **_without(plan, start_up_s)))
    assert clock.now - began_s + start_up_s <= 40
    assert sum(samples.step_s) <= 20


def _without(plan: Any, start_up_s: float) -> dict[str, Any]:
    limit_s = getattr(plan, "extra_max_seconds", None)
    return {} if limit_s is None else {"extra_max_seconds": limit_s - start_up_s}


def test_the_promise_counts_start_up_and_warm_up() -> None:
    """It said "at most 40 s each, besides start-up and warm-up", which were most of it."""
    from vernier.lab.report.progress import opening_line

    request = build_request(BenchTrain(data="synthetic", max_time="20s", repeats=2))
    assert opening_line(request, 1).endswith("measuring at most 0:40, about 1:01 with start-up and warm-up")


def test_notes_name_their_row_and_rates_have_the_digits_that_are_known() -> None:
    """Four lines about intervals named no row, and a rate known to a quarter had four digits."""
    every = [*rounds("batch=1", [1.0, 1.3] * 20, [1.5, 1.1] * 20, images=4), *rounds("batch=2", [1.0] * 40, images=4)]
    rows = [pool_rounds(f"batch={n}", ConfigurationLabels(batch=n), every) for n in (1, 2)]
    lines = [line for line in table.notes(rows) if "95 %" in line]
    assert [line.split(" interval: ")[0] for line in lines] == ["batch=1: 95 %", "batch=2: no 95 %"]
    assert table.tables(rows)[0][0]["img/s total"] == "3.3 (processes: 3.5, 3.1)"


def test_the_table_has_no_percentiles_of_a_few_steps() -> None:
    """`bench train --steps 3` had p95 and p99, which were its slowest step."""

    def step_ms(steps: int) -> str:
        every = rounds("batch=1", [0.01 + 0.0001 * i for i in range(steps)], images=4)
        return str(
            table.tables([pool_rounds("batch=1", ConfigurationLabels(batch=1), every)])[0][0]["step ms p5/50/95/99"]
        )

    assert step_ms(3).count("-") == 3
    assert step_ms(40).endswith("/-")
    assert "-" not in step_ms(120)


def test_a_profile_records_and_shows_what_disturbed_it(
    shapes: Path, tmp_path: Path, vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs took 85 % of the cores during a profile, and nothing said so."""
    config = override(tiny_config(shapes), "machine.telemetry_hz", 100.0)
    result = profile_run.profile_load(
        ProfileRequest(load="infer", first=2, last=3, out=tmp_path, config=to_dict(config))
    )
    run, summary = RunDir.open(result.run), result.summary
    assert summary.noise is not None
    assert summary.noise.samples > 0
    assert summary.ran is not None
    assert summary.ran.image_px == 32
    path = next(run.traces().glob("profile.*.json"))
    path.write_text(path.read_text().replace('"others_cores": ', '"others_cores": 1.7, "was": '))
    page = tmp_path / "page.html"
    assert vernier_here("report", str(run.path), "-o", str(page)).code == 0
    text = page.read_text()
    assert "other programs used 1.70 cores" in text


def test_profile_takes_a_network(vernier_here: Vernier, monkeypatch: pytest.MonkeyPatch) -> None:
    """`profile resnet50` said that there is no such recipe, and `--model resnet50` profiled 64 pixels."""
    profiled: list[Config] = []

    def stop(request: ProfileRequest, **_: object) -> None:
        profiled.append(config_from_tree(request.config))
        raise KeyboardInterrupt

    monkeypatch.setattr(profiling, "run", stop)
    for arguments in (["resnet50"], ["--model", "resnet50"]):
        vernier_here("profile", *arguments, "--device", "cpu")
    for config in profiled:
        recipe = config.recipe
        assert (recipe.model.name, recipe.model.width, recipe.data.image_px, recipe.global_batch) == (
            "resnet50",
            None,
            224,
            32,
        )
    assert len(profiled) == 2


@pytest.mark.parametrize("command", [["train"], ["scaling", "--procs", "1"], ["infer"]])
def test_an_error_names_the_flag_that_was_typed(vernier_here: Vernier, command: list[str]) -> None:
    """`bench scaling --precision fp31` spoke of --precisions."""
    done = vernier_here("bench", *command, "--precision", "fp31")
    assert done.code == 2
    assert "--precision fp31" in done.err
    assert "--precisions" not in done.err
