"""The search with simulated arms, whose speed and clock are known: it finds the best, and says when it cannot."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import pytest

from vernier.config import Config, override
from vernier.errors import ConfigError
from vernier.lab.tuning.candidates import Situation
from vernier.lab.tuning.search import Arm, Failed, Search
from vernier.records.bench import Ready, TunedSetting

SITUATION = Situation(work="train", device="cpu", cores=2, real_data=True)
Speed = Callable[[Config], float]


class SimulatedArm:
    ready = Ready(images_per_step=8, step_s=0.1, steps_per_turn=5)

    def __init__(self, stable: "SimulatedStable", speed: float) -> None:
        self._stable, self._speed = stable, speed

    def turn(self) -> float:
        self._stable.clock_s += 0.5
        if self._stable.turns_left == 0:
            raise KeyboardInterrupt
        self._stable.turns_left -= 1
        noise = self._stable.generator.gauss(0, self._stable.noise)
        return 100 * self._speed * (1 + noise)


class SimulatedStable:
    """Arms with a speed per configuration; a refusal is a text instead of a speed. Starts take `start_s`."""

    def __init__(self, speed: Callable[[Config], float | str], *, noise: float = 0.01, start_s: float = 4.0) -> None:
        self.speed, self.noise, self.start_s = speed, noise, start_s
        self.clock_s, self.generator, self.turns_left = 1000.0, random.Random(1), -1
        self.most_at_once = self.opened = 0

    def now_s(self) -> float:
        return self.clock_s

    @contextmanager
    def open(self, arms: Mapping[str, Config], limit_s: float) -> Iterator[Mapping[str, Arm | Failed]]:
        self.opened += 1
        self.most_at_once = max(self.most_at_once, len(arms))
        taken_s = len(arms) * self.start_s
        self.clock_s += min(taken_s, limit_s)
        if taken_s > limit_s:
            yield {name: Failed("not ready") for name in arms}
            return
        speeds = {name: self.speed(config) for name, config in arms.items()}
        yield {n: Failed(s) if isinstance(s, str) else SimulatedArm(self, s) for n, s in speeds.items()}


def searched(stable: SimulatedStable, minutes: float = 10.0, situation: Situation = SITUATION) -> Search:
    config = override(Config(), "machine.workers", 2)
    search = Search(config=config, situation=situation, stable=stable, minutes=minutes)
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
    stable = SimulatedStable(speed_of_many)
    search = searched(stable)
    assert search.machine == {"channels_last": False, "workers": 1, "mode": "compile"}
    assert search.confirmation is not None
    assert search.confirmation.confirmed
    assert search.confirmation.low < 1.2 * 1.1 * 1.06 < search.confirmation.high
    assert len(search.confirmation.chosen_rates) >= 3
    assert setting(search, "threads").values[0].verdict == "slower"
    assert setting(search, "allocator").chosen == "keep"
    assert stable.clock_s - 1000 <= 60 * 10 * 1.05


def test_later_settings_are_tried_from_the_best_so_far() -> None:
    def speed(config: Config) -> float:
        """Fewer workers only help once the layout is the plain one."""
        if config.machine.channels_last:
            return 1.0 if config.machine.workers == 2 else 0.8
        return 1.3 if config.machine.workers == 0 else 1.1

    assert searched(SimulatedStable(speed)).machine == {"channels_last": False, "workers": 0}


def test_equal_values_change_nothing_and_need_no_confirmation() -> None:
    search = searched(SimulatedStable(lambda _: 1.0))
    assert search.machine == {}
    assert search.confirmation is None
    verdicts = {value.verdict for s in search.settings for value in s.values}
    assert verdicts == {"no measurable difference"}


def test_what_is_refused_is_no_candidate_and_says_why() -> None:
    stable = SimulatedStable(lambda c: "needs a C++ compiler" if c.machine.mode == "compile" else 1.0)
    value = setting(searched(stable), "mode").values[0]
    assert (value.shown, value.verdict, value.why) == ("compile", "not measured", "needs a C++ compiler")


def test_a_gain_that_new_processes_do_not_show_is_not_confirmed() -> None:
    stable = SimulatedStable(lambda c: 1.0)
    races = 0

    def speed(config: Config) -> float:
        """The plain layout is faster in the races only."""
        return 1.2 if not config.machine.channels_last and stable.opened <= races else 1.0

    races = 1 + 5  # the default, and the settings that are tried
    stable.speed = speed
    search = searched(stable)
    assert search.machine == {"channels_last": False}
    assert search.confirmation is not None
    assert not search.confirmation.confirmed


def test_a_confirmation_without_time_is_none() -> None:
    stable = SimulatedStable(speed_of_many)

    def slow_to_start(config: Config) -> float:
        """From the plain layout on, every start takes minutes."""
        stable.start_s = 4.0 if config.machine.channels_last else 100.0
        return speed_of_many(config)

    stable.speed = slow_to_start
    search = searched(stable, minutes=6)
    assert search.machine["channels_last"] is False
    assert search.confirmation is None
    assert search.notes[0].startswith("not confirmed: ")


def test_too_short_a_time_says_what_is_needed() -> None:
    with pytest.raises(ConfigError, match="is too short") as error:
        searched(SimulatedStable(lambda _: 1.0), minutes=0.5)
    assert error.value.given == {"time": "30s"}
    assert ("time", "3m") in error.value.works
    with pytest.raises(ConfigError, match="not even the default settings were ready") as error:
        searched(SimulatedStable(lambda _: 1.0, start_s=100), minutes=0.5)
    assert ("time", "3m") in error.value.works


def test_defaults_that_do_not_run_are_an_error_with_their_reason() -> None:
    with pytest.raises(ConfigError, match="The default settings do not run: no such data"):
        searched(SimulatedStable(lambda _: "no such data"))


def test_what_matters_most_is_not_left_out_for_the_rest() -> None:
    """Shared out evenly, four minutes would be too few for every setting with three values."""
    infer = Situation(work="infer", device="cpu", cores=2, real_data=False, engines=("onnxruntime", "openvino"))
    stable = SimulatedStable(lambda config: 1.5 if config.machine.engine == "openvino" else 1.0, start_s=5.6)
    search = searched(stable, minutes=4, situation=infer)
    assert setting(search, "engine").chosen == "openvino"
    assert stable.clock_s - 1000 <= 4 * 60


def test_settings_without_time_are_left_out_and_the_limit_holds() -> None:
    stable = SimulatedStable(speed_of_many)
    search = searched(stable, minutes=2)
    assert any("no time left" in (s.left_out or "") for s in search.settings)
    assert stable.clock_s - 1000 <= 60 * 2 * 1.05


@pytest.mark.parametrize("turns", [1, 30, 90])
def test_ctrl_c_keeps_what_is_known(turns: int) -> None:
    stable = SimulatedStable(speed_of_many)
    stable.turns_left = turns
    search = Search(config=Config(), situation=SITUATION, stable=stable, minutes=10)
    with pytest.raises(KeyboardInterrupt):
        search.run()
    assert search.confirmation is None
    assert len(search.settings) <= turns / 5


def test_a_worse_combination_is_confirmed_as_rarely_as_promised() -> None:
    wrong = 0
    for seed in range(20):
        stable = SimulatedStable(lambda c: 1.0 if c == override(Config(), "machine.workers", 2) else 0.99, noise=0.03)
        stable.generator = random.Random(seed)
        search = searched(stable, minutes=5)
        wrong += search.confirmation is not None and search.confirmation.confirmed
    assert wrong <= 2
