"""`python -m tests.five_systems > docs/five-systems.md`: the page of the documentation, made from the tables."""

from collections import Counter

from tests.five_systems import STATES, SYSTEMS, Row, all_rows, rows_of

SHOWN = {
    "test": "CPU",
    "device": "device",
    "page": "page",
    "left out": "left out",
    "partly": "**partly**",
    "absent": "**absent**",
}
HEAD = """# The five systems, feature by feature

Vernier succeeds five systems: Habana's ResNet-50 for PyTorch (0.13), SSD-ResNet34 and ResNeXt-101 for TensorFlow
(1.5.0), NVIDIA's ResNet-50 v1.5 for PyTorch (May 2019), and the ResNet-50 part of the SC22 study of GPU variability.
This page lists every feature that their documents describe, what Vernier has for it, and the test that proves it. What
to type instead of their commands is on the pages [NVIDIA](coming-from-nvidia.md), [Habana](coming-from-habana.md) and
[SC22](coming-from-study.md).

- **CPU**: proven by a test that runs on a CPU, with the real code.
- **device**: needs an accelerator, or several hosts, that we do not have. The tests named are the nearest proof: they
  run on rgpu, a PyTorch device that queues its work in another process, against the vendor's real interface, or with a
  stand-in that the note names. **The hardware itself was not run by us**:
  [what was run where](devices.md#what-was-run-where).
- **page**: a flag of another program (mpirun) or a default that the page explains; there is nothing of ours to run.
- **left out**: deliberately; the note says why.
"""
TAIL = """
Proofs are tested, too: `make mutants` breaks features on purpose, one at a time in a copy of the source, and runs the
tests that prove them. On 2026-11-19, 22 mutations broke 140 features (one run of all, n = 1, commit 5e4e2027): every
proof failed as it should. So did the proofs of ResNeXt-101 18 and SSD 39, which came later, in a run of their two
mutations (`python -m tests.five_systems.mutants --only "resnext101-18|habana-ssd-39"`). On 2026-11-20, after features
were removed, 12 of the 24 mutations ran once more (one by one with `--only`, n = 1, commit 308c7bd5): all of their 133
rows, counted once per mutation, noticed. The mutations are in `tests/five_systems/mutations.toml`; ten of them run with
the tests.

Run a proof with `python -m pytest tests/` and its name, after `make dev`. Tests that need a package, a program or
public data that is not there are skipped with the reason; `.ci/run` installs what can be installed. The page is made by
`python -m tests.five_systems` from the tables in `tests/five_systems`; a test checks that every test named here exists
and runs in CI, and that the page is up to date.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *counts(), TAIL, *(line for system in SYSTEMS for line in section(system))]).rstrip() + "\n"


def counts() -> list[str]:
    """A table of features by system and state; states without a feature have no column."""
    rows = all_rows()
    present = [state for state in STATES if any(row.state == state for row in rows)]
    lines = [
        "| system | features | " + " | ".join(STATES[state] for state in present) + " |",
        "|---|---|" + "---|" * len(present),
    ]
    for title, part in [*((t, rows_of(s)) for s, t in SYSTEMS.items()), ("all", rows)]:
        states = Counter(row.state for row in part)
        lines.append(f"| {title} | {len(part)} | " + " | ".join(str(states[state]) for state in present) + " |")
    return lines


def section(system: str) -> list[str]:
    """The features of one system."""
    lines = [f"## {SYSTEMS[system]}", "", "| # | feature | state | proof | note |", "|---|---|---|---|---|"]
    return [*lines, *map(line_of, rows_of(system)), ""]


def line_of(row: Row) -> str:
    proofs = [f"`{name.removeprefix('tests/')}`" for name in row.tests] + [f"`{command}`" for command in row.commands]
    cells = (str(row.number), row.feature, SHOWN[row.state], "<br>".join(proofs), row.note)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    print(page(), end="")
