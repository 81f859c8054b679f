"""False choices of `vernier tune`, false verdicts about published accuracies, and blocks of runs of different times.

Run by benchmarks/coverage.py.

- tune: settings whose values all do nothing, measured by processes that differ (log-sd) and with noise within a
  process. Band: for at most 2.5 % of settings one of them is chosen. Shown too: of searches, and how often a value that
  is 5 % faster is chosen (a quarter of the cases). The search itself runs, with simulated processes.
- published: a run of the recipe is called below or above its published mean in at most 5.5 %, with the number of runs
  stated or, if there are at least 3, assumed. And how often a run that is 3 sd off is (no band).
- blocks: runs of the same thing, A in the morning and B in the evening of a machine that changes: how often the
  interval of `vernier compare` excludes 1 (shown; `compare` says that the machine may be the reason, and calls it no
  regression), and the same in rounds, where B is called slower in at most 5.5 %.

*Before* was simulated independently on 2026-11-18 at commit 5258558.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from promises.cells import Cells

from vernier.config import Config, Published, override
from vernier.lab.launcher import Failed
from vernier.lab.statistics import comparison
from vernier.lab.tuning import search as tuning
from vernier.lab.tuning.candidates import Situation
from vernier.measure import agreement

Rng = np.random.Generator
MEASURED = ("lab/tuning/*.py", "lab/statistics/*.py", "measure/agreement.py", "measure/student.py")
FALSE_CHOICES, FALSE_CALLS = 0.025, 0.055
SPREADS, NOISES = (0.0, 0.002, 0.005, 0.01, 0.02), (0.01, 0.03)
BEFORE_TUNE = "0 to 3.0 % if equal processes do not differ; 1 to 4 / 15 to 26 / 26 to 53 % if by 0.2 / 0.5 / 1 %"
BEFORE_PUBLISHED = "population sd 6.8 (2), 7.8 (3), 7.4 (5), 5.9 % (10); n assumed 15.6 (2), 4.7 (3); one digit 40 %"
BEFORE_BLOCKS = "regressions 3.2 to 4.3 (0.5 %), 12 to 17 (1 %), 26 to 31 % (2 %)"


# ----------------------------------------------------------------------------------------------------------------- tune


class _Machine:
    """Simulated processes: each has its own luck, and every measurement its own noise. Time passes as it is said."""

    def __init__(self, seed: int, spread: float, noise: float, speed: Callable[[Config], float]) -> None:
        self.random, self.spread, self.noise, self.speed = random.Random(seed), spread, noise, speed
        self.clock_s, self.memory_bytes = 0.0, 0

    def now_s(self) -> float:
        return self.clock_s

    @contextmanager
    def open(self, configs: Mapping[str, Config], limit_s: float) -> Iterator[Mapping[str, Any]]:
        taken_s = 4.0 * len(configs)
        self.clock_s += min(taken_s, limit_s)
        if taken_s > limit_s:
            yield {name: Failed("not ready") for name in configs}
            return
        yield {name: self._process(config) for name, config in configs.items()}

    def _process(self, config: Config) -> Any:
        own = self.speed(config) * math.exp(self.random.gauss(0, self.spread))

        def measure() -> Any:
            self.clock_s += 0.5
            rate = 100 * own * math.exp(self.random.gauss(0, self.noise))
            return SimpleNamespace(images_per_s=rate)

        return SimpleNamespace(measure=measure, ready=SimpleNamespace(images=40, seconds=0.5))


def _chosen(seed: int, spread: float, noise: float, faster: float) -> tuple[bool, int, int]:
    """Whether the search chose the value that is faster (plain layout), and how many of how many others it changed."""

    def speed(config: Config) -> float:
        return 1.0 if config.machine.channels_last else 1.0 + faster

    search = tuning.Search(
        config=override(Config(), "machine.workers", 2),
        situation=Situation(work="train", device="cpu", cores=2, real_data=True),
        machine=_Machine(seed, spread, noise, speed),  # type: ignore[arg-type]
        minutes=20.0,
        seed=seed,
    )
    search.run()
    right = "channels_last" in search.chosen and faster > 0
    others = [s for s in search.settings if s.values and not (faster and s.name == "channels_last")]
    return right, sum(s.chosen != s.before for s in others), len(others)


def tuned(seed: int, cases: int, spread: float, noise: float, faster: float) -> dict[str, float]:
    results = [_chosen(1000 * seed + k, spread, noise, faster) for k in range(cases)]
    found, wrong, settings = (sum(column) for column in zip(*results, strict=True))
    any_wrong = sum(r[1] > 0 for r in results)
    return {"found": found / cases, "of settings": wrong / max(1, settings), "of searches": any_wrong / cases}


# ------------------------------------------------------------------------------------------------------------ published


def published(
    rng: Rng, cases: int, runs: int, *, stated: bool, population: bool, digits: int | None, sd: float, off: float
) -> float:
    """How often one more run of a recipe, `off` standard deviations away, falls outside the prediction interval."""
    results = 75.0 + sd * rng.standard_normal((cases, runs))
    means, spreads = results.mean(1), results.std(1, ddof=0 if population else 1)
    own, outside = 75.0 + sd * (rng.standard_normal(cases) + off), 0
    for mean, spread, value in zip(means.tolist(), spreads.tolist(), own.tolist(), strict=True):
        if digits is not None:
            mean, spread = round(mean, digits), round(spread, digits)
        figure = Published(mean=mean, sd=spread, n=runs if stated else None)
        interval = agreement._prediction_interval(figure)
        assert interval is not None
        outside += not interval[0] <= value <= interval[1]
    return outside / cases


PUBLISHED: dict[str, dict[str, Any]] = {
    **{f"{n} runs, sample sd": {"runs": n, "stated": True, "population": False} for n in (2, 3, 5, 10, 50)},
    **{f"{n} runs, population sd": {"runs": n, "stated": True, "population": True} for n in (2, 3, 5, 10)},
    **{f"{n} runs, not published": {"runs": n, "stated": False, "population": False} for n in (2, 3, 5, 10)},
    "5 runs, sd 0.06 printed with one digit": {"runs": 5, "stated": True, "population": True, "digits": 1},
}
SHOWN = "2 runs, not published"
"""Three are assumed, and the output says so with its power."""


# --------------------------------------------------------------------------------------------------------------- blocks


def blocks(rng: Rng, cases: int, runs: int, shift: float, *, rounds: bool) -> dict[str, float]:
    """Runs that differ by 0.5 % of a machine that is faster or slower in the evening: verdicts, and regressions."""
    a, b = 0.005 * rng.standard_normal((2, cases, runs))
    if rounds:  # the machine changes between rounds
        weather = shift * rng.standard_normal((cases, runs))
        ratios = comparison.ratio_rows_of_rounds(a + weather, b + weather)
    else:
        ratios = comparison.ratio_rows_of_runs(a, b + shift * rng.standard_normal((cases, 1)))
    verdicts = comparison.verdicts(ratios, comparison.DEFAULT_TOLERANCE)
    slower = sum(v == "slower" for v in verdicts) / cases
    return {"different": 1 - verdicts.count("cannot tell") / cases, "slower": slower}


# -------------------------------------------------------------------------------------------------------------- results


def simulate(cell: Cells, cases: int) -> dict[str, Any]:
    exact = {"digits": None, "sd": 0.2}
    return {
        "tune": {
            (title := f"processes differ by {spread:.1%}, noise {noise:.0%}"): {
                **cell(
                    f"tune, {title}",
                    cases,
                    lambda rng, n, s=spread, e=noise: {
                        f"false {k}": v for k, v in tuned(_seed(rng), n, s, e, 0.0).items() if k != "found"
                    },
                ),
                "5 % faster found": cell(
                    f"tune, {title}, 5 % faster",
                    max(10, cases // 4),
                    lambda rng, n, s=spread, e=noise: tuned(_seed(rng), n, s, e, 0.05)["found"],
                )["share"],
            }
            for spread in SPREADS
            for noise in NOISES
        },
        "published": {
            name: cell(
                f"published, {name}",
                cases,
                lambda rng, n, case=case: {
                    f"{off} sd off": published(
                        rng, n, **{**exact, **case, **({"sd": 0.06} if "digits" in case else {})}, off=off
                    )
                    for off in (0.0, 3.0)
                },
            )
            for name, case in PUBLISHED.items()
        },
        "blocks": {
            (title := f"{k} against {k} {'rounds' if rounds else 'runs'}, shift {shift:.1%}"): cell(
                f"blocks, {title}",
                5 * cases,
                lambda rng, n, k=k, shift=shift, rounds=rounds: blocks(rng, n, k, shift, rounds=rounds),
            )
            for k in (3, 5)
            for shift in (0.005, 0.01, 0.02)
            for rounds in (False, True)
        },
    }


def _seed(rng: Rng) -> int:
    return int(rng.integers(1 << 30))


def _allowed(share: float, cases: int) -> float:
    return share + 3 * math.sqrt(share * (1 - share) / cases)


def failures(result: dict[str, Any]) -> list[str]:
    wrong = [
        f"tune, {name}: chooses a useless value in {v['false of settings']:.1%}"
        for name, v in result["tune"].items()
        if v["false of settings"] > _allowed(FALSE_CHOICES, v["n"])
    ]
    wrong += [
        f"published, {name}: disagrees in {v['0.0 sd off']:.1%}"
        for name, v in result["published"].items()
        if name != SHOWN and v["0.0 sd off"] > _allowed(FALSE_CALLS, v["n"])
    ]
    return wrong + [
        f"blocks, {name}: slower in {v['slower']:.1%}"
        for name, v in result["blocks"].items()
        if "rounds" in name and v["slower"] > _allowed(FALSE_CALLS, v["n"])
    ]


def lines(result: dict[str, Any]) -> list[str]:
    """The result as text, one line per cell, in percent."""
    shown = []
    for title, before in (("tune", BEFORE_TUNE), ("published", BEFORE_PUBLISHED), ("blocks", BEFORE_BLOCKS)):
        shown.append(f"{title}; before: {before}")
        for name, cells in result[title].items():
            figures = ", ".join(f"{key} {100 * v:.2f}" for key, v in cells.items() if key != "n")
            shown.append(f"  {name:44}{figures}, n = {cells['n']:,}")
    return shown
