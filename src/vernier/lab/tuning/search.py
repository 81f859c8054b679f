"""The search: from one setting to the next, each compared with the best so far; then the result with the defaults.

Every setting has its share of the time, and what it leaves goes to those after it. Its values are first compared in one
process each. Equal processes differ, too, so the best value is chosen only if pairs of new processes show that it is
faster. The result is measured afresh in the same way, and only that is the headline: the comparisons chose the settings
by their own figures. `Processes` measure and have the clock (tests have simulated ones).
"""

import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psutil

from vernier.clock import now_s
from vernier.config import Config, Work, override, to_dict
from vernier.errors import ConfigError
from vernier.frozen import frozen
from vernier.lab.launcher import Failed, LiveProcess, live, memory_limit
from vernier.lab.records.bench import Confirmation, LiveRequest, Ready, SettingValue, TunedSetting, TunedValue
from vernier.quantities import duration
from vernier.references import given, use
from vernier.wording import plural

from .candidates import Candidate, Changes, Setting, Situation, order_of, setting_to_try
from .comparing import FEWEST_ROUNDS, LOOKS, ComparedValues, Ratio, paired_ratio

CONFIRM_SHARE = 0.3
"""Of the time, kept for the confirmation."""
CONFIRM_MEASUREMENTS = 4  # per new process, whose start costs far more time than a measurement
MOST_CONFIRM_ROUNDS, MOST_CHOICE_ROUNDS = 8, 5
READY_SHARE = 0.6
"""Of a comparison's time, within which a process must be ready."""
MARGIN = 1.15  # costs are known from one start and one measurement of the defaults; other values may take longer


MEMORY_SHARE = 0.85
_SILENCE_S = 86_400.0
"""machine.rank_timeout_s: processes are stopped for as long as others measure."""


class Processes:
    """Starts processes for configurations of some work. `memory_bytes` is the most that one of them has needed."""

    def __init__(self, work: Work) -> None:
        self._work, self.memory_bytes = work, 0

    def now_s(self) -> float:
        return now_s()

    @contextmanager
    def open(self, configs: Mapping[str, Config], limit_s: float) -> Iterator[Mapping[str, LiveProcess | Failed]]:
        """Start these, side by side; each is ready, or failed, within the limit. All end with the context."""
        most = len(configs)
        if self.memory_bytes:
            most = int(MEMORY_SHARE * psutil.virtual_memory().available / self.memory_bytes)
        chosen = dict(list(configs.items())[:most])
        each = f"{self.memory_bytes / 2**30:.1f} GiB"
        crowded = Failed(f"free memory is enough for {most} processes of {each}: reduce {use('batch')}")
        with live({name: self._request(config, len(chosen)) for name, config in chosen.items()}, limit_s) as processes:
            yield {name: processes.get(name, crowded) for name in configs}
            used = [p.memory_bytes() for p in processes.values() if isinstance(p, LiveProcess)]
            self.memory_bytes = max(self.memory_bytes, *used, 0)

    def _request(self, config: Config, count: int) -> LiveRequest:
        limit = memory_limit(config.machine.device)
        machine = replace(config.machine, telemetry_hz=0.0, rank_timeout_s=_SILENCE_S)
        return LiveRequest(
            load=self._work,
            config=to_dict(replace(config, machine=machine)),
            memory_limit_bytes=None if limit is None else limit // count,
        )


@frozen
class Cost:
    """What the default settings took: seconds until ready, and seconds per measurement."""

    start_s: float
    measure_s: float

    def comparison_s(self, candidates: int) -> float:
        """The shortest comparison of a setting's values."""
        return MARGIN * (1 + candidates) * (self.start_s + LOOKS[0] * self.measure_s)

    def limit_s(self, candidates: int) -> float:
        """The time to give to the shortest comparison, of which starting may take a share only."""
        return max(self.comparison_s(candidates), MARGIN * (1 + candidates) * self.start_s / READY_SHARE)

    def pair_s(self) -> float:
        """Two new processes and their measurements."""
        return 2 * (self.start_s + CONFIRM_MEASUREMENTS * self.measure_s)

    def confirmation_s(self) -> float:
        """The fewest pairs of new processes."""
        return MARGIN * FEWEST_ROUNDS * self.pair_s()


@dataclass
class Search:
    """One search and what it knows so far, also when Ctrl-C ends it. `say` gets lines that stay,
    `show` the present state; `keep` is called after each setting.

    An interrupted search continues with the `settings` that were tried, what they have `chosen` and the time that they
    took.
    """

    config: Config
    situation: Situation
    machine: Processes
    minutes: float
    say: Callable[[str], None] = lambda _: None
    show: Callable[[str], None] = lambda _: None
    keep: Callable[[], None] = lambda: None
    seed: int = 0
    spent_s: float = 0.0
    settings: list[TunedSetting] = field(default_factory=list)
    chosen: dict[str, SettingValue] = field(default_factory=dict)
    confirmation: Confirmation | None = None
    ready: Ready | None = None
    notes: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Search and confirm. Raises ConfigError where the time is too short, or the default settings do not run."""
        self._random = random.Random(self.seed)
        began_s = self.machine.now_s() - self.spent_s
        end_s = began_s + 60 * self.minutes
        cost = self._try_default(end_s)
        # A search that continues has started the defaults twice: not at the cost of its confirmation.
        end_s = max(end_s, self.machine.now_s() + 2 * cost.confirmation_s())
        search_end_s = end_s - max(CONFIRM_SHARE * 60 * self.minutes, cost.confirmation_s()) - cost.confirmation_s()
        names = order_of(self.situation)[len(self.settings) :]
        # The values to try follow from the best so far, so that a setting is made only when it is next.
        for number, name in enumerate(names):
            setting = setting_to_try(name, self._best(), self.situation)
            limit_s = self._limit_s(names[number:], search_end_s, setting, cost)
            self.settings.append(self._try_setting(setting, limit_s, cost))
            self.spent_s = self.machine.now_s() - began_s
            self.keep()
        # Empty if nothing was faster: the result is the defaults, and there is nothing to confirm.
        if self.chosen:
            try:
                self._confirm(end_s, cost)
            except Failed as failure:
                self.notes.append(f"not confirmed: {failure}")

    # ------------------------------------------------------------------------------------------------------ default

    def _try_default(self, end_s: float) -> Cost:
        """Whether the default settings run, and how long a start and a measurement take. Raises ConfigError."""
        self.say("default settings: starting")
        began_s = self.machine.now_s()
        with self.machine.open({"default": self.config}, end_s - began_s) as opened:
            start_s = self.machine.now_s() - began_s
            try:
                process = opened["default"]
                self.ready = process.ready
                process.measure()
                measure_began_s = self.machine.now_s()
                rate = process.measure().images_per_s
            except Failed as failure:
                raise ConfigError(self._too_short_or_refused(str(failure), start_s)) from None
            cost = Cost(start_s=start_s, measure_s=self.machine.now_s() - measure_began_s)
        self.say(
            f"default settings: {rate:,.1f} img/s; a start takes {start_s:.1f} s, a measurement {cost.measure_s:.1f} s"
        )
        needed_s = self.machine.now_s() - began_s + cost.comparison_s(1) + 2 * cost.confirmation_s()
        if needed_s > 60 * self.minutes:
            raise ConfigError(
                f"{self._time} is too short: a process takes {start_s:.0f} s to start here and a measurement "
                f"{cost.measure_s:.1f} s, so that one setting and its confirmation need {needed_s / 60:.1f} minutes. "
                f"Use {use('time', f'{math.ceil(2 * needed_s / 60)}m')} or more, or reduce {use('batch')}."
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
        return with_machine(self.config, self.chosen)

    def _limit_s(self, names: Sequence[str], search_end_s: float, setting: Setting, cost: Cost) -> float:
        """Seconds for this setting: the time left, shared out by how many values each setting has, but enough for a
        comparison if there is as much: what usually matters most comes first, and must not be left out for the rest."""
        counts = [1 + len(s.candidates) for s in (setting_to_try(n, self._best(), self.situation) for n in names)]
        left_s = search_end_s - self.machine.now_s()
        if not setting.candidates:
            return 0.0
        # Settings without candidates are not measured and need no time.
        share_s = left_s * (1 + len(setting.candidates)) / sum(count for count in counts if count > 1)
        return max(share_s, min(left_s, cost.limit_s(len(setting.candidates))))

    def _try_setting(self, setting: Setting, limit_s: float, cost: Cost) -> TunedSetting:
        left_out = setting.left_out
        needed_s = cost.comparison_s(len(setting.candidates))
        # Without the margin: a comparison that probably just fits is tried, not left out.
        if left_out is None and limit_s < needed_s / MARGIN:
            left_out = f"no time left: {max(0.0, limit_s):.0f} s, and it needs {needed_s:.0f}"
        tried = TunedSetting(name=setting.name, before=setting.now, chosen=setting.now, left_out=left_out)
        if left_out is not None:
            return tried
        values = ", ".join(c.shown for c in setting.candidates)
        self.say(f"{setting.name}: {values} against {setting.now}, at most {limit_s:.0f} s")
        end_s = self.machine.now_s() + limit_s
        compared = ComparedValues([c.shown for c in setting.candidates])
        failures = self._compare(compared, setting, end_s)
        judged = {c.shown: _judge(c, compared, failures.get(c.shown), setting.now) for c in setting.candidates}
        best = compared.best()
        if best is not None:
            judged[best] = self._measure_again(judged[best], setting.now, end_s, cost)
            if judged[best].verdict == "chosen":
                self.chosen |= judged[best].machine
                tried = replace(tried, chosen=best)
        for value in judged.values():
            self.say(f"{setting.name} = {value.shown}: {value.verdict}{_times(value)}")
        return replace(tried, values=tuple(judged.values()), rates=tuple(compared.base))

    def _compare(self, compared: ComparedValues, setting: Setting, end_s: float) -> dict[str, str]:
        """Rounds until all values are judged or the time is up; why candidates could not take part."""
        failures = dict[str, str]()
        best = self._best()
        configs = {_BASE: best, **{c.shown: with_machine(best, c.changes) for c in setting.candidates}}
        # The value in use runs again for every setting: rates of different times cannot be compared.
        with self.machine.open(configs, READY_SHARE * (end_s - self.machine.now_s())) as opened:
            while not compared.over and self.machine.now_s() < end_s:
                names, rates = [_BASE, *compared.open], dict[str, float]()
                # A fixed order would give a value the same neighbors, and the same phase of a periodic noise, in every
                # round.
                for name in self._random.sample(names, len(names)):
                    try:
                        rates[name] = opened[name].measure().images_per_s
                    except Failed as failure:
                        # Ratios are against the base: without it no candidate can be judged any more.
                        gone = list(compared.open) if name == _BASE else [name]
                        failures |= dict.fromkeys(gone, str(failure))
                        compared.open = [other for other in compared.open if other not in gone]
                        if name == _BASE:
                            return failures
                if compared.open:
                    compared.add(rates.pop(_BASE), rates)
                    left_s = max(0.0, end_s - self.machine.now_s())
                    self.show(f"{setting.name}: round {len(compared.base)}, at most {duration(left_s)} left")
        return failures

    # --------------------------------------------------------------------------------------------------- new processes

    def _measure_again(self, value: TunedValue, before: str, end_s: float, cost: Cost) -> TunedValue:
        """The best value against the one in use in pairs of new processes: whether it is chosen."""
        self.say(f"{value.shown} was faster than {before}: measuring both in new processes")
        best = self._best()
        end_s = max(end_s, self.machine.now_s() + cost.confirmation_s())
        try:
            base, own = self._pairs(best, with_machine(best, value.machine), end_s, cost, MOST_CHOICE_ROUNDS)
        except Failed as failure:
            return replace(value, why=str(failure))
        ratio = paired_ratio(own, base)
        verdict = "slower" if ratio.high < 1 else "chosen" if ratio.is_faster else "no measurable difference"
        return _with_figures(value, ratio, own, verdict)

    def _confirm(self, end_s: float, cost: Cost) -> None:
        """The chosen settings against the defaults in pairs of new processes, as many as the time allows."""
        self.say("confirming the chosen settings against the defaults in new processes")
        default, chosen = self._pairs(self.config, self._best(), end_s, cost, MOST_CONFIRM_ROUNDS)
        ratio = paired_ratio(chosen, default)
        self.confirmation = Confirmation(default_rates=tuple(default), chosen_rates=tuple(chosen), **vars(ratio))

    def _pairs(
        self, before: Config, after: Config, end_s: float, cost: Cost, most: int
    ) -> tuple[list[float], list[float]]:
        """Rates of both by round, each round in two new processes. Raises Failed."""
        rates: tuple[list[float], list[float]] = ([], [])
        longest_s = cost.pair_s()
        for number in range(most):
            began_s = self.machine.now_s()
            self.show(f"new processes: pair {number + 1}, at most {duration(max(0.0, end_s - began_s))} left")
            # The number of rounds depends on the time, never on the rates: stopping at a good moment would be a bias.
            if number >= FEWEST_ROUNDS and began_s + longest_s > end_s:
                break
            if began_s > end_s:
                after_rounds = plural(number, "round")
                raise Failed(f"the time was over after {after_rounds} of new processes: raise {use('time')}")
            # A round that has begun may end: at least as long as a round is expected to take.
            with self.machine.open({"0": before, "1": after}, max(longest_s, end_s - began_s)) as opened:
                own: tuple[list[float], list[float]] = ([], [])
                for _ in range(CONFIRM_MEASUREMENTS):
                    for side in self._random.sample((0, 1), 2):
                        own[side].append(opened[str(side)].measure().images_per_s)
            for all_rates, measured in zip(rates, own, strict=True):
                # Measurements of equal work: total images over total time.
                all_rates.append(statistics.harmonic_mean(measured))
            # The first round replaces the estimate by a measured time.
            longest_s = max(longest_s if number else 0.0, self.machine.now_s() - began_s)
        return rates


_BASE = "value in use"


def with_machine(config: Config, changes: Changes) -> Config:
    """The configuration with these settings of the machine."""
    for name, value in changes.items():
        config = override(config, f"machine.{name}", value)
    return config


def _judge(candidate: Candidate, compared: ComparedValues, failure: str | None, before: str) -> TunedValue:
    """What one process of each says about a value."""
    ratio, rates = compared.ratio(candidate.shown), compared.rates[candidate.shown]
    value = TunedValue(shown=candidate.shown, machine=dict(candidate.changes), verdict="not measured", why=failure)
    if failure is not None:
        return value
    if ratio is None or not math.isfinite(ratio.high):
        return replace(
            value,
            images_per_s=statistics.harmonic_mean(rates) if rates else None,
            rates=tuple(rates),
            why=f"only {len(rates)} rounds against {before} in its time",
        )
    verdict = "faster" if ratio.is_faster else "slower" if ratio.high < 1 else "no measurable difference"
    return _with_figures(value, ratio, rates, verdict)


def _with_figures(value: TunedValue, ratio: Ratio, rates: Sequence[float], verdict: str) -> TunedValue:
    own = {"images_per_s": statistics.harmonic_mean(rates), "rates": tuple(rates), "verdict": verdict}
    return TunedValue(**{**vars(value), **own, **vars(ratio)})


def _times(value: TunedValue) -> str:
    if value.why or value.ratio is None:
        return f" ({value.why})" if value.why else ""
    return f", {value.ratio:.3f} times as fast [{value.low:.3f}, {value.high:.3f}]"
