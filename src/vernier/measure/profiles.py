"""Which steps to profile, and a profile in words. Imports no torch: reports use it too."""

from dataclasses import dataclass

from vernier.errors import ConfigError
from vernier.records.profile import ProfileSummary
from vernier.references import given, use

from .noise import describe_noise


@dataclass(frozen=True)
class StepRange:
    """Steps `first` to `last`, counted from 1, both included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str, option: str) -> "StepRange":
        """From A:B, or one step, given as `option`. Raises ConfigError."""
        parts = text.split(":")
        try:
            first, last = int(parts[0]), int(parts[-1])
        except ValueError:
            first, last = 0, 0
        if len(parts) > 2 or not 1 <= first <= last:
            raise ConfigError(
                f"{given(option, text)}: give the first and the last step as A:B with 1 <= A <= B, such as "
                f"{use(option, '11:15')}."
            )
        return cls(first, last)

    def check(self, done: int, stop: int, option: str) -> None:
        """Raise ConfigError unless a run that has `done` steps and ends at step `stop` will reach the whole range."""
        if self.first <= done:
            raise ConfigError(
                f"{given(option, f'{self.first}:{self.last}')}: the run resumes at step {done + 1}, and steps are "
                f"counted from its beginning. Give a range that begins at {done + 1} or later."
            )
        if self.last > stop:
            raise ConfigError(f"{given(option, f'{self.first}:{self.last}')}: the run ends at step {stop}.")


def describe_profile(profile: ProfileSummary) -> list[str]:
    """Lines for the terminal: what disturbed it, where the time goes, and what profiling cost."""
    split = ", ".join(f"{name} {100 * s:.1f} %" for name, s in profile.where_the_time_goes.share.items())
    cost = profile.overhead
    overhead = (
        "unknown, fewer than three steady steps around the range"
        if cost is None
        else f"a step took {cost.ratio:.2f} times as long ({1000 * cost.profiled_step_s_median:.1f} ms, "
        f"n = {cost.n_profiled}, against {1000 * cost.other_step_s_median:.1f} ms, n = {cost.n_others}; medians)"
    )
    noise = describe_noise(profile.noise) if profile.noise else []
    return [
        *([f"NOISY while profiling: {'; '.join(noise)}"] if noise else []),
        f"where the time goes (steps {profile.steps[0]} to {profile.steps[1]}): {split}",
        f"overhead of profiling: {overhead}",
    ]
