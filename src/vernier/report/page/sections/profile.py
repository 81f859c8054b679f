"""Profile: where a step's time goes, the longest kernels, their share by kind, memory, and a link to the trace."""

import re
from collections import defaultdict

from markupsafe import Markup

from vernier.measure.telemetry.noise import describe_noise
from vernier.report.page.collect import Profile, Subject
from vernier.report.page.figures import (
    PHASE_COLOURS,
    Bars,
    Figure,
    Lines,
    Section,
    Stack,
    grid,
    make_section,
    with_data,
)
from vernier.report.page.html import Cell, Column, div, table, tag

TOP = 25
KINDS = (
    ("communication", r"nccl|hccl|gloo|c10d|allreduce|all_reduce|broadcast"),
    ("optimizer", r"sgd|adam|lars|lamb|_foreach_|optimizer"),
    ("convolution", r"conv|winograd|implicit_gemm|wgrad|dgrad|xmma"),
    ("normalisation", r"batch_?norm|bn_|layer_?norm"),
    ("matrix product", r"gemm|matmul|addmm|aten::mm|aten::bmm|linear|dot"),
    ("pooling", r"pool"),
    ("activation", r"relu|clamp|sigmoid|softmax|threshold|gelu"),
    ("loss", r"nll|cross_entropy|loss"),
    ("copy", r"memcpy|copy|memset|aten::to|contiguous|cat|clone|zero_|fill_"),
    ("elementwise", r"add|mul|div|sub|elementwise|lerp|sqrt|pow"),
)
"""Kinds of kernels by their names; the first pattern that matches counts."""


def profile(subjects: list[Subject]) -> Section | None:
    profiles = [(s, p) for s in subjects for p in s.profiles]
    if not profiles:
        return None
    figures: list[Figure] = []
    parts: list[Markup] = []
    for number, (s, p) in enumerate(profiles):
        charts = with_data(_phases(p, number), _kinds(p, number), _memory(p, number))
        figures += charts
        title = f"{s.name}, process {p.summary.rank}"
        head = tag("h3", title, style="margin-bottom:10px") if len(profiles) > 1 else None
        parts.append(
            div(
                "stack",
                head,
                tag("p", _describe(p), cls="note"),
                _noise(p),
                grid(charts),
                _kernels(p, number),
                _trace(p),
                style="margin-bottom:26px",
            )
        )
    lead = "Durations with the profiler on, which makes steps longer."
    return make_section("profile", "Profile", lead, *parts, figures=figures)


def _describe(p: Profile) -> str:
    text, cost = "Steps {} to {}".format(*p.summary.steps), p.summary.overhead
    if cost:
        text += f"; a profiled step took {cost.ratio:.2f} times as long as the {cost.n_others} steady steps around it"
    return f"{text}."


def _noise(p: Profile) -> Markup | None:
    noise = describe_noise(p.summary.noise) if p.summary.noise else []
    return tag("p", f"Noisy while profiling: {'; '.join(noise)}.", cls="notice") if noise else None


def _phases(p: Profile, number: int) -> Figure:
    first, last = p.summary.steps
    steps = "one step" if first == last else "the profiled steps"
    return Figure(
        name=f"where-{number}",
        title="Where the time goes",
        chart=Stack(category="what", part="phase", value="ms", unit="ms", part_colours=PHASE_COLOURS),
        columns=["what", "phase", "ms"],
        rows=[[steps, name, 1000 * s] for name, s in p.summary.where_the_time_goes.seconds.items()],
        wide=True,
    )


def kernel_kind(name: str) -> str:
    """What a kernel or operation does, judged by its name."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, name, re.IGNORECASE)), "other")


def _kinds(p: Profile, number: int) -> Figure:
    totals: dict[tuple[str, str], float] = defaultdict(float)
    for k in p.kernels:
        totals[k.device, kernel_kind(k.name)] += k.total_ms
    whole = {d: sum(v for (device, _), v in totals.items() if device == d) for d, _ in totals}
    return Figure(
        name=f"kinds-{number}",
        title="Share by kind",
        chart=Bars(
            category="kind",
            value="share %",
            unit=" %",
            x_title="% of the device's time",
            by="device" if len(whole) > 1 else None,
        ),
        columns=["kind", "device", "share %", "ms"],
        rows=[
            [kind, device, 100 * ms / whole[device], ms]
            for (device, kind), ms in sorted(totals.items(), key=lambda e: -e[1])
            if ms
        ],
        caption="kinds are judged by the names of operations",
    )


def _memory(p: Profile, number: int) -> Figure:
    on_host = {m.device for m in p.memory} == {"cpu"}
    return Figure(
        name=f"memory-{number}",
        title="Memory allocated by PyTorch",
        caption=f"{'' if on_host else 'on the host (cpu) only '}the change since the profile began",
        chart=Lines(x="ms", y="MiB", by="device", zero=True, unit=" MiB"),
        columns=["ms", "device", "MiB"],
        rows=[[m.t_ms, m.device, m.allocated_bytes / 2**20] for m in p.memory],
    )


def _kernels(p: Profile, number: int) -> Markup | None:
    rows: list[list[Cell]] = [
        [k.name, k.share, k.total_ms, k.calls, k.mean_ms, k.max_ms, kernel_kind(k.name), k.device]
        for k in p.kernels[:TOP]
    ]
    if not rows:
        return None
    columns = [
        Column("name", wrap=True),
        Column("share", meter=True),
        *map(Column, ("total ms", "calls", "mean ms", "longest ms", "kind", "device")),
    ]
    title = f"The {len(rows)} longest of {len(p.kernels)} kernels and operations"
    return div("card", table(f"kernels-{number}", columns, rows, title))


def _trace(p: Profile) -> Markup | None:
    if p.trace is None:
        return None
    name = tag("code", p.trace)
    link = Markup('<a href="{}">{}</a>').format(p.link, name) if p.link else name
    return tag("p", "The trace, for Perfetto or chrome://tracing: ", link, cls="note")
