"""The search with simulated processes, whose speed and clock are known: it finds the best, and says when it cannot."""

import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.tiny_training import tiny_config
from vernier.config import Config, override
from vernier.errors import ConfigError
from vernier.lab.launcher import Failed, LiveProcess
from vernier.lab.records.bench import Measurement, Ready, TunedSetting
from vernier.lab.tuning.candidates import Situation, order_of
from vernier.lab.tuning.search import Processes, Search

SITUATION = Situation(work="train", device="cpu", cores=2, real_data=True)
Speed = Callable[[Config], float]


class SimulatedProcess:
    ready = Ready(images=40, seconds=0.5)

    def __init__(self, machine: "SimulatedMachine", speed: float) -> None:
        self._machine, self._speed = machine, speed

    def measure(self) -> Measurement:
        self._machine.clock_s += 0.5
        if self._machine.left == 0:
            raise KeyboardInterrupt
        self._machine.left -= 1
        noise = self._machine.generator.gauss(0, self._machine.noise)
        return Measurement(images=1, seconds=1 / (100 * self._speed * (1 + noise)))


class SimulatedMachine:
    """Processes with a speed per configuration; a refusal is a text instead of a speed. Starts take `start_s`."""

    def __init__(self, speed: Callable[[Config], float | str], *, noise: float = 0.01, start_s: float = 4.0) -> None:
        self.speed, self.noise, self.start_s = speed, noise, start_s
        self.clock_s, self.generator, self.left = 1000.0, random.Random(1), -1
        self.most_at_once = self.opened = 0

    def now_s(self) -> float:
        return self.clock_s

    @contextmanager
    def open(self, configs: Mapping[str, Config], limit_s: float) -> Iterator[Mapping[str, LiveProcess | Failed]]:
        self.opened += 1
        self.most_at_once = max(self.most_at_once, len(configs))
        taken_s = len(configs) * self.start_s
        self.clock_s += min(taken_s, limit_s)
        if taken_s > limit_s:
            yield {name: Failed("not ready") for name in configs}
            return
        speeds = {name: self.speed(config) for name, config in configs.items()}
        yield {n: Failed(s) if isinstance(s, str) else SimulatedProcess(self, s) for n, s in speeds.items()}


def searched(machine: SimulatedMachine, minutes: float = 10.0, situation: Situation = SITUATION) -> Search:
    config = override(Config(), "machine.workers", 2)
    search = Search(config=config, situation=situation, machine=machine, minutes=minutes)
    search.run()
    return search


def setting(search: Search, name: str) -> TunedSetting:
    return next(s for s in search.settings if s.name == name)


def speed_of_many(config: Config) -> float:
    """One thread is slower, plain layout is faster, one worker too; compiling is a little faster after that."""
    machine = config.machine
    speed = 0.6 if machine.threads == 1 else 1.0
    speed *= 1.0 if machine.channels_last else 1.2
    speed *= {0: 0.7, 1: 1.1}.get(machine.workers, 1.0)
    return speed * (1.06 if machine.mode == "compile" else 1.0)


def test_it_finds_the_best_combination_and_confirms_it_afresh() -> None:
    machine = SimulatedMachine(speed_of_many)
    search = searched(machine)
    assert search.chosen == {"channels_last": False, "workers": 1, "mode": "compile"}
    assert search.confirmation is not None
    assert search.confirmation.confirmed
    assert search.confirmation.low < 1.2 * 1.1 * 1.06 < search.confirmation.high
    assert len(search.confirmation.chosen_rates) >= 3
    assert setting(search, "threads").values[0].verdict == "slower"
    assert setting(search, "allocator").chosen == "keep"
    assert machine.clock_s - 1000 <= 60 * 10 * 1.05


def test_later_settings_are_tried_from_the_best_so_far() -> None:
    def speed(config: Config) -> float:
        """Fewer workers only help once the layout is the plain one."""
        if config.machine.channels_last:
            return 1.0 if config.machine.workers == 2 else 0.8
        return 1.3 if config.machine.workers == 0 else 1.1

    assert searched(SimulatedMachine(speed)).chosen == {"channels_last": False, "workers": 0}


def test_equal_values_change_nothing_and_need_no_confirmation() -> None:
    search = searched(SimulatedMachine(lambda _: 1.0))
    assert search.chosen == {}
    assert search.confirmation is None
    verdicts = {value.verdict for s in search.settings for value in s.values}
    assert verdicts == {"no measurable difference"}


def test_what_is_refused_is_no_candidate_and_says_why() -> None:
    machine = SimulatedMachine(lambda c: "needs a C++ compiler" if c.machine.mode == "compile" else 1.0)
    value = setting(searched(machine), "mode").values[0]
    assert (value.shown, value.verdict, value.why) == ("compile", "not measured", "needs a C++ compiler")


def test_a_gain_that_new_processes_do_not_show_changes_nothing() -> None:
    machine, first = SimulatedMachine(lambda c: 1.0), list[int]()

    def speed(config: Config) -> float:
        """The plain layout is faster in its first process only."""
        if config.machine.channels_last:
            return 1.0
        first.append(machine.opened)
        return 1.2 if machine.opened == first[0] else 1.0

    machine.speed = speed
    search = searched(machine)
    assert search.chosen == {}
    (plain,) = setting(search, "channels_last").values
    assert plain.verdict == "no measurable difference"
    assert len(plain.rates) >= 3  # of new processes


@pytest.mark.parametrize("spread", [0.005, 0.01])
def test_equal_settings_are_chosen_as_rarely_as_promised_if_equal_processes_differ(spread: float) -> None:
    """With one process per value, 9 to 22 % of settings were changed wrongly at 0.5 %, and 26 to 53 % at 1 %."""
    settings = wrong = 0
    for seed in range(60):
        machine = SimulatedMachine(lambda _: math.exp(machine.generator.gauss(0, spread)), noise=0.003)  # noqa: B023
        machine.generator = random.Random(seed)
        search = searched(machine)
        settings += sum(bool(s.values) for s in search.settings)
        wrong += len(search.chosen)
    assert settings >= 300
    assert wrong <= 0.025 * settings


def test_a_large_gain_is_found_if_equal_processes_differ() -> None:
    def speed(config: Config) -> float:
        return (1.0 if config.machine.channels_last else 1.1) * math.exp(machine.generator.gauss(0, 0.01))

    found = 0
    for seed in range(20):
        machine = SimulatedMachine(speed, noise=0.003)
        machine.generator = random.Random(seed)
        found += searched(machine).chosen.get("channels_last") is False
    assert found >= 18


def test_a_best_value_that_does_not_start_again_is_not_chosen() -> None:
    machine = SimulatedMachine(speed_of_many)

    def slow_to_start(config: Config) -> float:
        """From the plain layout on, every start takes minutes."""
        machine.start_s = 4.0 if config.machine.channels_last else 100.0
        return speed_of_many(config)

    machine.speed = slow_to_start
    search = searched(machine, minutes=6)
    assert search.chosen == {}
    (plain,) = setting(search, "channels_last").values
    assert (plain.verdict, plain.why) == ("faster", "not ready")


def test_a_confirmation_without_time_is_none() -> None:
    machine = SimulatedMachine(speed_of_many)

    def say(text: str) -> None:
        machine.start_s = 100.0 if text.startswith("confirming") else 4.0

    search = Search(config=override(Config(), "machine.workers", 2), situation=SITUATION, machine=machine, minutes=10)
    search.say = say
    search.run()
    assert search.chosen["channels_last"] is False
    assert search.confirmation is None
    assert search.notes[0].startswith("not confirmed: ")


def test_too_short_a_time_says_what_is_needed() -> None:
    with pytest.raises(ConfigError, match="is too short") as error:
        searched(SimulatedMachine(lambda _: 1.0), minutes=0.5)
    assert error.value.given == {"time": "30s"}
    assert ("time", "4m") in error.value.works
    with pytest.raises(ConfigError, match="not even the default settings were ready") as error:
        searched(SimulatedMachine(lambda _: 1.0, start_s=100), minutes=0.5)
    assert ("time", "3m") in error.value.works


def test_defaults_that_do_not_run_are_an_error_with_their_reason() -> None:
    with pytest.raises(ConfigError, match="The default settings do not run: no such data"):
        searched(SimulatedMachine(lambda _: "no such data"))


def test_what_matters_most_is_not_left_out_for_the_rest() -> None:
    """Shared out evenly, four minutes would be too few for every setting with three values."""
    infer = Situation(work="infer", device="cpu", cores=2, real_data=False, engines=("onnxruntime", "openvino"))
    machine = SimulatedMachine(lambda config: 1.5 if config.machine.engine == "openvino" else 1.0, start_s=5.6)
    search = searched(machine, minutes=4, situation=infer)
    assert setting(search, "engine").chosen == "openvino"
    assert machine.clock_s - 1000 <= 4 * 60


def test_settings_without_time_are_left_out_and_the_limit_holds() -> None:
    machine = SimulatedMachine(speed_of_many)
    search = searched(machine, minutes=2)
    assert any("no time left" in (s.left_out or "") for s in search.settings)
    assert machine.clock_s - 1000 <= 60 * 2 * 1.05


@pytest.mark.parametrize("measurements", [1, 30, 90])
def test_ctrl_c_keeps_what_is_known(measurements: int) -> None:
    machine = SimulatedMachine(speed_of_many)
    machine.left = measurements
    search = Search(config=Config(), situation=SITUATION, machine=machine, minutes=10)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert search.confirmation is None
    assert len(search.settings) <= measurements / 5


def test_a_worse_combination_is_confirmed_as_rarely_as_promised() -> None:
    wrong = 0
    for seed in range(20):
        machine = SimulatedMachine(lambda c: 1.0 if c == override(Config(), "machine.workers", 2) else 0.99, noise=0.03)
        machine.generator = random.Random(seed)
        search = searched(machine, minutes=5)
        wrong += search.confirmation is not None and search.confirmation.confirmed
    assert wrong <= 2


# ------------------------------------------------------------------------------------------------------------ processes


def small(shapes: Path) -> Config:
    return override(tiny_config(shapes), "global_batch", 4)


def all_stopped(processes: list[psutil.Process]) -> bool:
    """Whether all are stopped, or will be within 10 s: a signal takes a moment to arrive."""
    return any(
        all(p.status() == psutil.STATUS_STOPPED for p in processes) or threading.Event().wait(0.05) for _ in range(200)
    )


def test_processes_measure_when_asked_and_are_stopped_in_between(shapes: Path) -> None:
    config = small(shapes)
    refused = replace(config, machine=replace(config.machine, precision="tf32"))
    with Processes("train").open({"a": config, "refused": refused}, 120) as configs:
        refusal, a = configs["refused"], configs["a"]
        assert isinstance(refusal, Failed)
        assert "tf32" in str(refusal)
        assert isinstance(a, LiveProcess)
        assert a.ready.images % 4 == 0
        assert a.memory_bytes() > 2**20
        processes = a._tree()
        assert all_stopped(processes)
        assert a.measure().images_per_s > 0
        assert a.measure().images_per_s > 0
        assert all_stopped(processes)
    assert not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes)


def test_a_late_process_is_ended(shapes: Path) -> None:
    with Processes("train").open({"a": small(shapes)}, 0.2) as configs:
        late = configs["a"]
        assert isinstance(late, Failed)
        assert "not ready" in str(late)


def test_no_more_configs_than_memory_allows(shapes: Path) -> None:
    processes = Processes("train")
    processes.memory_bytes = 2**60
    with processes.open({"a": small(shapes), "b": small(shapes)}, 1) as configs:
        assert all(
            isinstance(configuration, Failed) and "memory is enough for 0" in str(configuration)
            for configuration in configs.values()
        )


def test_a_search_that_was_killed_continues_with_what_it_had_tried() -> None:
    machine = SimulatedMachine(speed_of_many)
    machine.left = 90
    config = override(Config(), "machine.workers", 2)
    killed = Search(config=config, situation=SITUATION, machine=machine, minutes=10.0)
    with pytest.raises(KeyboardInterrupt):
        killed.run()
    tried = list(killed.settings)
    assert 0 < len(tried) < len(order_of(SITUATION))
    machine.left = -1
    continued = Search(
        config=config,
        situation=SITUATION,
        machine=machine,
        minutes=10.0,
        settings=list(tried),
        chosen=dict(killed.chosen),
        spent_s=killed.spent_s,
    )
    began_s = machine.clock_s
    continued.run()
    assert continued.settings[: len(tried)] == tried
    assert [each.name for each in continued.settings] == list(order_of(SITUATION))
    assert continued.chosen == {"channels_last": False, "workers": 1, "mode": "compile"}
    assert continued.confirmation is not None
    assert machine.clock_s - began_s <= 600 * 1.05 - killed.spent_s
