"""The search: from one setting to the next, each a race from the best so far; then the result against the defaults.

Every race has its share of the time, and what it leaves goes to those after it. The confirmation is measured afresh, in
new processes per round, and only it is the headline: the races chose the settings by their own figures. What runs the
turns is a `Stable` (`live` has processes, tests have simulated ones), so that this module has no clock of its own.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from vernier.config import Config, override
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.records.bench import Confirmation, Ready, SettingValue, TunedSetting, TunedValue
from vernier.references import given, use
from vernier.wording import plural

from .candidates import Candidate, Changes, Setting, Situation, order_of, setting_to_try
from .racing import FEWEST_ROUNDS, LOOKS, Race, Ratio, paired_ratio

CONFIRM_SHARE = 0.4
"""Of the time, kept for the confirmation."""
CONFIRM_TURNS = 4  # per new process, whose start costs far more time than a turn
MOST_CONFIRM_ROUNDS = 8
READY_SHARE = 0.6
"""Of a race's time, within which a process must be ready."""
MARGIN = 1.15  # costs are known from one start and one turn of the defaults; other values may take longer


class Failed(Exception):
    """An arm that cannot run here or did not answer in time; the text says why."""


class Arm(Protocol):
    """A load that is ready to take turns."""

    ready: Ready

    def turn(self) -> float:
        """Images per second of one turn. Raises Failed."""
        ...


class Stable(Protocol):
    """What starts arms, side by side, and measures time."""

    def now_s(self) -> float: ...

    def open(self, arms: Mapping[str, Config], limit_s: float) -> AbstractContextManager[Mapping[str, "Arm | Failed"]]:
        """Start these; each is ready, or failed, within the limit. All end with the context."""
        ...


@frozen
class Cost:
    """What the default settings took: seconds until ready, and seconds per turn."""

    start_s: float
    turn_s: float

    def race_s(self, candidates: int) -> float:
        """The shortest race."""
        return MARGIN * (1 + candidates) * (self.start_s + LOOKS[0] * self.turn_s)

    def limit_s(self, candidates: int) -> float:
        """The time to give to the shortest race, of which starting may take a share only."""
        return max(self.race_s(candidates), MARGIN * (1 + candidates) * self.start_s / READY_SHARE)

    def confirmation_s(self) -> float:
        """The shortest confirmation."""
        return MARGIN * FEWEST_ROUNDS * 2 * (self.start_s + CONFIRM_TURNS * self.turn_s)


@dataclass
class Search:
    """One search and what it knows so far, also when Ctrl-C ends it. `say` is called with what goes on."""

    config: Config
    situation: Situation
    stable: Stable
    minutes: float
    say: Callable[[str], None] = lambda _: None
    seed: int = 0
    settings: list[TunedSetting] = field(default_factory=list)
    machine: dict[str, SettingValue] = field(default_factory=dict)
    confirmation: Confirmation | None = None
    ready: Ready | None = None
    notes: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Search and confirm. Raises ConfigError where the time is too short, or the default settings do not run."""
        self._random = random.Random(self.seed)
        began_s = self.stable.now_s()
        end_s = began_s + 60 * self.minutes
        cost = self._try_default(end_s)
        search_end_s = end_s - max(CONFIRM_SHARE * 60 * self.minutes, cost.confirmation_s())
        names = order_of(self.situation)
        # The values to try follow from the best so far, so that a setting is made only when its turn has come.
        for number, name in enumerate(names):
            setting = setting_to_try(name, self._best(), self.situation)
            limit_s = self._limit_s(names[number:], search_end_s, setting, cost)
            self.settings.append(self._try_setting(setting, limit_s, cost))
        # Empty if nothing was faster: the result is the defaults, and there is nothing to confirm.
        if self.machine:
            try:
                self._confirm(end_s, cost)
            except Failed as failure:
                self.notes.append(f"not confirmed: {failure}")

    # ------------------------------------------------------------------------------------------------------ default

    def _try_default(self, end_s: float) -> Cost:
        """Whether the default settings run, and how long a start and a turn take. Raises ConfigError."""
        self.say("default settings: starting")
        began_s = self.stable.now_s()
        with self.stable.open({"default": self.config}, end_s - began_s) as arms:
            start_s = self.stable.now_s() - began_s
            try:
                arm = _usable(arms["default"])
                self.ready = arm.ready
                arm.turn()
                turn_began_s = self.stable.now_s()
                rate = arm.turn()
            except Failed as failure:
                raise ConfigError(self._too_short_or_refused(str(failure), start_s)) from None
            cost = Cost(start_s=start_s, turn_s=self.stable.now_s() - turn_began_s)
        self.say(f"default settings: {rate:,.1f} img/s; a start takes {start_s:.1f} s, a turn {cost.turn_s:.1f} s")
        needed_s = self.stable.now_s() - began_s + cost.race_s(1) + cost.confirmation_s()
        if needed_s > 60 * self.minutes:
            raise ConfigError(
                f"{self._time} is too short: a process takes {start_s:.0f} s to start here and a turn "
                f"{cost.turn_s:.1f} s, so that one setting and its confirmation need {needed_s / 60:.1f} minutes. Use "
                f"{use('time', f'{math.ceil(2 * needed_s / 60)}m')} or more, or reduce {use('batch')}."
            )
        return cost

    def _too_short_or_refused(self, why: str, after_s: float) -> str:
        # A start that fails at the limit had no time; one that fails before has a reason of its own.
        if after_s < 0.95 * 60 * self.minutes:
            return f"The default settings do not run: {why}"
        return (
            f"{self._time} is too short: not even the default settings were ready by then. Use "
            f"{use('time', f'{math.ceil(max(3.0, 4 * self.minutes))}m')} or more, or reduce {use('batch')}."
        )

    @property
    def _time(self) -> str:
        whole = self.minutes == round(self.minutes)
        return given("time", f"{self.minutes:g}m" if whole else f"{60 * self.minutes:g}s")

    # ---------------------------------------------------------------------------------------------------- one setting

    def _best(self) -> Config:
        return with_machine(self.config, self.machine)

    def _limit_s(self, names: Sequence[str], search_end_s: float, setting: Setting, cost: Cost) -> float:
        """Seconds for this setting: the time left, shared out by how many values each setting has, but enough for a
        race if there is as much: what usually matters most comes first, and must not be left out for the rest."""
        arms = [1 + len(s.candidates) for s in (setting_to_try(n, self._best(), self.situation) for n in names)]
        # Settings without candidates are not raced and need no time.
        arms = [count for count in arms if count > 1]
        left_s = search_end_s - self.stable.now_s()
        if not setting.candidates:
            return 0.0
        share_s = left_s * (1 + len(setting.candidates)) / sum(arms)
        return max(share_s, min(left_s, cost.limit_s(len(setting.candidates))))

    def _try_setting(self, setting: Setting, limit_s: float, cost: Cost) -> TunedSetting:
        if setting.left_out is not None:
            return _left_out(setting, setting.left_out)
        # Without the margin: a race that probably just fits is tried, not left out.
        if limit_s < cost.race_s(len(setting.candidates)) / MARGIN:
            needed_s = cost.race_s(len(setting.candidates))
            return _left_out(setting, f"no time left: {max(0.0, limit_s):.0f} s, and it needs {needed_s:.0f}")
        tried = ", ".join(c.shown for c in setting.candidates)
        self.say(f"{setting.name}: {tried} against {setting.now}, at most {limit_s:.0f} s")
        race = Race([c.shown for c in setting.candidates])
        failures = self._race(race, setting, limit_s)
        winner = race.winner()
        if winner is not None:
            self.machine |= next(c.changes for c in setting.candidates if c.shown == winner)
        values = [_judge(c, race, winner, failures.get(c.shown), setting.now) for c in setting.candidates]
        for value in values:
            self.say(f"{setting.name} = {value.shown}: {value.verdict}{_times(value)}")
        return TunedSetting(
            name=setting.name,
            before=setting.now,
            chosen=winner or setting.now,
            values=tuple(values),
            rates=tuple(race.base),
        )

    def _race(self, race: Race, setting: Setting, limit_s: float) -> dict[str, str]:
        """Turns until the race is over or its time is up; why candidates could not take part."""
        end_s, failures = self.stable.now_s() + limit_s, dict[str, str]()
        best = self._best()
        arms = {c.shown: with_machine(best, c.changes) for c in setting.candidates}
        # The value in use runs again in every race: rates of different races were not measured at the same time.
        with self.stable.open({_BASE: best, **arms}, READY_SHARE * limit_s) as opened:
            live = {name: arm for name, arm in opened.items() if not isinstance(arm, Failed)}
            for name in list(race.open):
                if name not in live:
                    failures[name] = str(opened[name])
                    race.drop(name)
            if _BASE not in live:
                for name in list(race.open):
                    failures[name] = f"the value in use did not run: {opened[_BASE]}"
                    race.drop(name)
            while not race.over and self.stable.now_s() < end_s:
                rates = self._round(race, live, failures)
                if _BASE in rates:
                    race.add(rates.pop(_BASE), rates)
        return failures

    def _round(self, race: Race, live: Mapping[str, Arm], failures: dict[str, str]) -> dict[str, float]:
        """A turn of every open arm, in random order; one that fails is left out, and so is a round without the base."""
        names, rates = [_BASE, *race.open], dict[str, float]()
        # A fixed order would give a value the same neighbors, and the same phase of a periodic noise, in every round.
        for name in self._random.sample(names, len(names)):
            try:
                rates[name] = live[name].turn()
            except Failed as failure:
                # Ratios are against the base: without it no candidate can be judged any more.
                gone = list(race.open) if name == _BASE else [name]
                for other in gone:
                    failures[other] = str(failure)
                    race.drop(other)
                if name == _BASE:
                    return {}
        return rates

    # --------------------------------------------------------------------------------------------------- confirmation

    def _confirm(self, end_s: float, cost: Cost) -> None:
        """The chosen settings against the defaults, in new processes every round, as often as the time allows."""
        arms = {"default": self.config, "chosen": self._best()}
        rates: dict[str, list[float]] = {name: [] for name in arms}
        self.say("confirming the chosen settings against the defaults in new processes")
        longest_s = 2 * (cost.start_s + CONFIRM_TURNS * cost.turn_s)
        for number in range(MOST_CONFIRM_ROUNDS):
            began_s = self.stable.now_s()
            # The number of rounds depends on the time, never on the rates: stopping at a good moment would be a bias.
            if number >= FEWEST_ROUNDS and began_s + longest_s > end_s:
                break
            if began_s > end_s:
                after = plural(number, "round")
                raise Failed(f"the time was over after {after} of new processes: raise {use('time')}")
            # A round that has begun may end: at least as long as a round is expected to take.
            with self.stable.open(arms, max(longest_s, end_s - began_s)) as opened:
                for name, rate in self._confirm_round({n: _usable(a) for n, a in opened.items()}):
                    rates[name].append(rate)
            # The first round replaces the estimate by a measured time.
            longest_s = max(longest_s if number else 0.0, self.stable.now_s() - began_s)
        ratio = paired_ratio(rates["chosen"], rates["default"])
        self.confirmation = Confirmation(
            default_rates=tuple(rates["default"]),
            chosen_rates=tuple(rates["chosen"]),
            ratio=math.exp(ratio.value),
            low=math.exp(ratio.low),
            high=math.exp(ratio.high),
        )

    def _confirm_round(self, arms: Mapping[str, Arm]) -> Iterator[tuple[str, float]]:
        """The rate of each arm over its turns, which alternate."""
        rates: dict[str, list[float]] = {name: [] for name in arms}
        for _ in range(CONFIRM_TURNS):
            for name in self._random.sample(list(arms), len(arms)):
                rates[name].append(arms[name].turn())
        for name, own in rates.items():
            yield name, statistics.harmonic_mean(own)  # turns of equal work: total images over total time


_BASE = "value in use"


def _usable(arm: "Arm | Failed") -> Arm:
    if isinstance(arm, Failed):
        raise arm
    return arm


def with_machine(config: Config, changes: Changes) -> Config:
    """The configuration with these settings of the machine."""
    for name, value in changes.items():
        config = override(config, f"machine.{name}", value)
    return config


def _left_out(setting: Setting, why: str) -> TunedSetting:
    return TunedSetting(name=setting.name, before=setting.now, chosen=setting.now, left_out=why)


def _judge(candidate: Candidate, race: Race, winner: str | None, failure: str | None, before: str) -> TunedValue:
    """What a race says about one value."""
    ratio, name = race.ratio(candidate.shown), candidate.shown
    value = TunedValue(shown=name, machine=dict(candidate.changes), verdict="not measured", why=failure)
    if failure is not None or ratio is None or not math.isfinite(ratio.low):
        rounds = len(race.rates[name])
        return value if failure else _with(value, ratio, race, why=f"only {rounds} rounds against {before} in its time")
    if name == winner:
        return _with(value, ratio, race, verdict="chosen")
    if race.is_faster(name):
        return _with(value, ratio, race, verdict="faster")
    return _with(value, ratio, race, verdict="slower" if race.is_slower(name) else "no measurable difference")


def _with(value: TunedValue, ratio: Ratio | None, race: Race, **changes: str) -> TunedValue:
    rates = tuple(race.rates[value.shown])
    figures = {} if ratio is None or not math.isfinite(ratio.low) else _figures(ratio)
    own = {"images_per_s": statistics.harmonic_mean(rates), "rates": rates} if rates else {}
    return TunedValue(**{**vars(value), **own, **figures, **changes})


def _figures(ratio: Ratio) -> dict[str, float]:
    return {"ratio": math.exp(ratio.value), "low": math.exp(ratio.low), "high": math.exp(ratio.high)}


def _times(value: TunedValue) -> str:
    if value.ratio is None or value.low is None or value.high is None:
        return f" ({value.why})" if value.why else ""
    return f", {value.ratio:.3f} times as fast [{value.low:.3f}, {value.high:.3f}]"
