"""Profiles on the page: run directories with profiled steps, which can be those of a training run, and their section.

The section shows where a step's time goes, the longest kernels, their share by kind, and a link to the trace.
"""

import os
import re
import tomllib
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from markupsafe import Markup

from vernier.frozen import frozen
from vernier.lab.reading.csv_tables import read_csv
from vernier.records.codec import decode
from vernier.records.profile import KernelTime, ProfileSummary
from vernier.report.page.figures import PHASE_COLOURS, Content, Figure, Section, stacks
from vernier.report.page.html import card, note, tag, tile
from vernier.report.page.identity import parts_of_record
from vernier.report.page.runs import Run, read_or_note, read_run
from vernier.report.page.subjects import Kind
from vernier.store import RunDir, read_record

from .drawing import TABLES, draw

T = TypeVar("T")
_TOP = 25
_KINDS: dict[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@frozen
class Profile:
    """Profiled steps of one process."""

    summary: ProfileSummary
    kernels: tuple[KernelTime, ...] = ()
    trace: Path | None = None


@frozen
class Profiled(Run):
    """A run directory with its profiles."""

    profiles: tuple[Profile, ...] = ()

    def tiles(self) -> list[Markup]:
        tiles = super().tiles()
        shares = self.profiles[0].summary.where_the_time_goes.share if self.profiles else {}
        if shares:
            first, last = self.profiles[0].summary.steps
            longest = max(shares, key=lambda name: shares[name])
            tiles.append(tile("steps profiled", str(last - first + 1), "", f"{first} to {last}"))
            tiles.append(tile("most time in", longest, "", f"{100 * shares[longest]:.0f} % of a step"))
        return tiles

    def noise(self) -> list[str]:
        noises = [p.summary.noise.sentences() for p in self.profiles if p.summary.noise]
        return [*super().noise(), *(f"noisy while profiling: {'; '.join(noise)}" for noise in noises if noise)]


def read_profiled(run: RunDir, brief: bool) -> Profiled:
    """A run directory with its profiles; damaged ones are named in its notes. Briefly, without them."""
    read, notes = read_run(run, brief), list[str]()
    paths = run.profiles()
    # A damaged profile of one process must not hide those of the others.
    profiles = [p for path in paths if not brief and (p := read_or_note(partial(_profile, path), notes))]
    fields = {**vars(read), "profiles": tuple(profiles), "notes": (*notes, *read.notes)}
    # A profile of its own has no events.
    if paths and read.start is None and not read.points and not read.evals:
        fields["kind"] = "profile"
    ran = tuple(p.summary.ran for p in profiles if p.summary.ran)[:1]  # every process repeats it
    if ran and not read.recorded:
        fields |= {"ran": ran, "recorded": True, "parts": parts_of_record(ran)}
    return Profiled(**fields)


def _profile(path: Path) -> Profile:
    """The profile of one process: profile.rank0.json, with kernels.rank0.csv and the trace beside."""

    def beside(name: str, suffix: str) -> Path | None:
        file = path.with_name(path.name.replace("profile", name, 1).removesuffix("json") + suffix)
        return file if file.is_file() else None

    def rows(cls: type[T], file: Path | None) -> list[T]:
        return [decode(cls, dict(row), f"{file}[{i}]") for i, row in enumerate(read_csv(file))] if file else []

    return Profile(
        summary=read_record(ProfileSummary, path),
        kernels=tuple(rows(KernelTime, beside("kernels", "csv"))),
        trace=beside("trace", "json.gz"),
    )


# ------------------------------------------------------------------------------------------------------------- section


def profile(subjects: list[Profiled]) -> Content | None:
    profiles = [(s, p) for s in subjects for p in s.profiles]
    runs = [
        (
            f"{s.name}, process {p.summary.rank}",
            [note(_describe(p)), _noise(p)],
            [_phases(p), _kinds(p)],
            [_kernels(p, number), _trace(s, p)],
        )
        for number, (s, p) in enumerate(profiles)
    ]
    return stacks("Durations with the profiler on, which makes steps longer.", runs)


def _describe(p: Profile) -> str:
    text, cost = "Steps {} to {}".format(*p.summary.steps), p.summary.overhead
    if cost:
        text += f"; a profiled step took {cost.ratio:.2f} times as long as the {cost.n_others} steady steps around it"
    return f"{text}."


def _noise(p: Profile) -> Markup | None:
    noise = p.summary.noise.sentences() if p.summary.noise else []
    return tag("p", f"Noisy while profiling: {'; '.join(noise)}.", cls="notice") if noise else None


def _phases(p: Profile) -> Figure:
    first, last = p.summary.steps
    steps = "one step" if first == last else "the profiled steps"
    data = [[steps, name, 1000 * s] for name, s in p.summary.where_the_time_goes.seconds.items()]
    return draw("where", data, part_colours=PHASE_COLOURS)


def kernel_kind(name: str) -> str:
    """What a kernel or operation does, judged by its name."""
    return next((kind for kind, pattern in _KINDS.items() if re.search(pattern, name, re.IGNORECASE)), "other")


def _kinds(p: Profile) -> Figure:
    totals: dict[tuple[str, str], float] = defaultdict(float)
    for k in p.kernels:
        totals[k.device, kernel_kind(k.name)] += k.total_ms
    whole = {d: sum(v for (device, _), v in totals.items() if device == d) for d, _ in totals}
    # Kernels of devices and operations of the host run at the same time: a common total would count the time twice.
    longest = sorted(totals.items(), key=lambda e: -e[1])
    data = [[kind, device, 100 * ms / whole[device], ms] for (device, kind), ms in longest if ms]
    return draw("kinds", data, by="device" if len(whole) > 1 else None)


def _kernels(p: Profile, number: int) -> Markup | None:
    # A profile can have thousands of kernels; the rest is in kernels.csv.
    columns, shown = TABLES["kernels"], p.kernels[:_TOP]
    rows = [[*(c.cell(k) for c in columns), kernel_kind(k.name), k.device] for k in shown]
    title = f"The {len(shown)} longest of {len(p.kernels)} kernels and operations"
    return card(f"kernels-{number}", [*columns, "kind", "device"], rows, title) if rows else None


def _trace(s: Profiled, p: Profile) -> Markup | None:
    if p.trace is None:
        return None
    link = tag("code", p.trace)
    if s.page_folder is not None:
        # Quoted: a `#` or `?` in the name of a folder would end the path of the link.
        link = Markup('<a href="{}">{}</a>').format(quote(os.path.relpath(p.trace, s.page_folder)), link)
    return note("The trace, for Perfetto or chrome://tracing: ", link)


KIND = Kind(
    recognizes=lambda path, _: RunDir.is_run(path) and bool(RunDir(path).profiles()),
    read=lambda path, brief: [read_profiled(RunDir(path), brief)],
    order=30,
)
SECTION = Section(title="Profile", order=70, of=Profiled, build=profile)
