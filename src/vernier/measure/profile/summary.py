"""What a profile is asked for and what it says, in words. Imports no torch: reports use it too."""

from dataclasses import dataclass
from typing import Any

from vernier.errors import ConfigError


@dataclass(frozen=True)
class Range:
    """Steps `first` to `last`, counted from 1, both included."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str, flag: str) -> "Range":
        """A:B, or one step."""
        parts = text.split(":")
        try:
            first, last = int(parts[0]), int(parts[-1])
        except ValueError:
            first, last = 0, 0
        if len(parts) > 2 or not 1 <= first <= last:
            raise ConfigError(
                f"{flag} {text!r}: give the first and the last step as A:B with 1 <= A <= B, such as 11:15."
            )
        return cls(first, last)

    def check(self, done: int, stop: int, flag: str) -> None:
        """That the steps still lie ahead of a run that has `done` some and stops at one."""
        if self.first <= done:
            raise ConfigError(
                f"{flag} {self.first}:{self.last}: the run goes on from step {done + 1}, and steps are counted from its beginning. "
                f"Give a range from {done + 1} on."
            )
        if self.last > stop:
            raise ConfigError(f"{flag} {self.first}:{self.last}: the run ends at step {stop}.")


def profile_lines(found: dict[str, Any]) -> list[str]:
    """For people."""
    split = ", ".join(f"{name} {100 * s:.1f} %" for name, s in found["where_the_time_goes"]["share"].items())
    lines = [f"where the time goes (steps {found['steps'][0]} to {found['steps'][1]}): {split}"]
    cost = found["overhead"]
    lines.append(
        "overhead of profiling: unknown, fewer than three steady steps around the range" if cost is None else
        f"overhead of profiling: a step took {cost['ratio']:.2f} times as long ({1000 * cost['profiled_step_s_median']:.1f} ms, "
        f"n = {cost['n_profiled']}, against {1000 * cost['other_step_s_median']:.1f} ms, n = {cost['n_others']}; medians)"
    )  # fmt: skip
    return lines
