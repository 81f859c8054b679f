"""Which steps of a run to profile. Imports no torch: requests are checked with it."""

from dataclasses import dataclass

from vernier.errors import ConfigError
from vernier.references import given, use


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
            # One step alone is both ends.
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
