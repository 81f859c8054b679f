"""Which devices of a fleet compute wrong: all did the same steps, and fingerprints of their results vote.

Only equal devices vote together (model, threads, libraries). What they all share, such as a wrong kernel, no vote can
see. Bounds are exact for rates per repeat, and for device-hours the Poisson bound of no event, -ln 0.05 = 3.0 per hour.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from vernier.frozen import frozen
from vernier.lab.records.bench import ExactResult
from vernier.wording import plural

LEVEL = 0.95
FEWEST_DEVICES = 3
_NO_EVENT = -math.log(1 - LEVEL)

Verdict = Literal["permanent", "intermittent", "suspected", "another class"]


@frozen
class Ballot:
    """One repeat on one device."""

    device: str
    model: str
    hours: float
    result: ExactResult


@frozen
class Dissent:
    """A device that contradicts the majority. `first`: what of its first wrong repeat differs first.

    `another class`: several devices have the same other results, so they have other software, or are other hardware.
    """

    device: str
    verdict: Verdict
    wrong: int
    repeats: int
    first: str


@frozen
class Electorate:
    """Equal devices. `no_verdict`: why they did not vote."""

    what: str
    devices: int
    repeats: int
    hours: float
    dissents: tuple[Dissent, ...] = ()
    no_verdict: str = ""

    @property
    def clean(self) -> int:
        """The devices that never contradicted."""
        return self.devices - len(self.dissents)

    def rate_per_hour(self) -> float:
        """The upper bound of the rate of corruptions of a device that never contradicted."""
        return _NO_EVENT / (self.hours * self.clean / self.devices)

    def rate_per_repeat(self) -> float:
        return 1 - math.pow(1 - LEVEL, self.devices / (self.repeats * self.clean))

    def prevalence(self, chance: float) -> float:
        """The upper bound of the fraction of devices that err in a repeat with this chance, and were not seen."""
        seen = 1 - math.pow(1 - chance, self.repeats / self.devices)
        return 1 - math.pow(1 - LEVEL, 1 / (self.clean * seen))


def vote(ballots: Iterable[Ballot]) -> tuple[Electorate, ...]:
    """Let the devices of each kind vote."""
    groups: dict[str, list[Ballot]] = {}
    for ballot in ballots:
        groups.setdefault(f"{ballot.model}, {ballot.result.library}", []).append(ballot)
    return tuple(_vote(what, group) for what, group in sorted(groups.items()))


def _vote(what: str, ballots: Sequence[Ballot]) -> Electorate:
    answers: dict[str, list[tuple[str, ...]]] = {}
    for ballot in ballots:
        answers.setdefault(ballot.device, []).append(ballot.result.fingerprints)
    common = {device: Counter(own).most_common(1)[0][0] for device, own in answers.items()}
    winner, supporters = Counter(common.values()).most_common(1)[0]
    unsteady = sum(len(set(own)) > 1 for own in answers.values())
    reason = ""
    if len(answers) < FEWEST_DEVICES:
        reason = f"{plural(len(answers), 'device')}, and a vote needs {FEWEST_DEVICES}"
    elif unsteady > max(1, len(answers) / 100):
        # A fault of one device, or an operation that is not deterministic in all of them?
        reason = f"{unsteady} devices contradict themselves: the steps are not repeatable there"
    elif 2 * supporters <= len(answers):
        reason = "no result is that of more than half of the devices"
    return Electorate(
        what=what,
        devices=len(answers),
        repeats=len(ballots),
        hours=sum(ballot.hours for ballot in ballots),
        dissents=() if reason else tuple(_dissents(answers, winner)),
        no_verdict=reason,
    )


def _dissents(answers: dict[str, list[tuple[str, ...]]], winner: tuple[str, ...]) -> Iterator[Dissent]:
    shared = Counter(answer for own in answers.values() for answer in set(own))
    for device, own in sorted(answers.items()):
        wrong = [answer for answer in own if answer != winner]
        if not wrong:
            continue
        verdict: Verdict = "suspected" if len(wrong) == 1 < len(own) else "intermittent"
        if len(wrong) == len(own) and len(set(wrong)) == 1:
            verdict = "permanent" if shared[wrong[0]] == 1 else "another class"
        first = next((right for other, right in zip(wrong[0], winner, strict=False) if other != right), "")
        yield Dissent(
            device=device, verdict=verdict, wrong=len(wrong), repeats=len(own), first=first.rpartition(" ")[0]
        )


def hours_needed(rate: float) -> float:
    """The device-hours without a dissent that exclude a rate of corruptions per device-hour."""
    return _NO_EVENT / rate
