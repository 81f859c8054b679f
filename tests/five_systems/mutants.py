"""Breaks features on purpose, and checks that the tests which are named as their proof notice.

`mutations.toml` lists mutations: a file, a text in it, what replaces the text, and the rows of the tables that lose
their feature. For each, the tests named by those rows run in a copy of the tree with that one change; at least one test
of every row must fail. Tests that are skipped prove nothing.

    python -m tests.five_systems.mutants                 all of them, with a summary
    python -m tests.five_systems.mutants --sample        the quick ones that are part of the test suite
    python -m tests.five_systems.mutants --only LARS      those whose file, text or rows contain this
    python -m tests.five_systems.mutants --check          whether every text is still found once; runs nothing
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.five_systems import FOLDER, Row, all_rows

REPO = FOLDER.parents[1]
TIME_LIMIT_S = 600
SKIPPED_FOLDERS = (".git", ".venv*", "runs", "site", "build", ".cache", "*_cache", "__pycache__", ".hypothesis")


@dataclass(frozen=True)
class Mutation:
    """One change of one file, and the features that it breaks."""

    file: str
    find: str
    replace: str
    rows: tuple[str, ...]
    only: str = ""
    """A regular expression: of the tests that the rows name, those that match run. Empty: all."""
    quick: bool = False
    """Part of the sample that the test suite runs: its tests take a few seconds."""

    def __str__(self) -> str:
        return f"{self.file}: {self.find.strip().splitlines()[0]!r}"

    def apply(self, root: Path) -> None:
        """Change the file below `root`. Raises ValueError if the text is not there exactly once."""
        path = root / self.file
        if not path.is_file():
            raise ValueError(f"{self.file} does not exist (moved?); it breaks {', '.join(self.rows)}")
        text = path.read_text(encoding="utf-8")
        if (times := text.count(self.find)) != 1:
            raise ValueError(
                f"{self.file} contains {self.find!r} {times} times, not once. Change `find` in mutations.toml to "
                f"a text of the code that now does this; the mutation breaks {', '.join(self.rows)}"
            )
        changed = text.replace(self.find, self.replace)
        compile(changed, self.file, "exec")  # every test would notice a file that cannot be imported
        path.write_text(changed, encoding="utf-8")

    def tests(self, row: Row) -> list[str]:
        """The tests of a row that run for this mutation."""
        return [test for test in row.tests if re.search(self.only, test)]


@dataclass(frozen=True)
class Verdict:
    """What the tests of a mutation said: per row, whether one of its tests failed."""

    mutation: Mutation
    noticed: dict[str, bool]
    output: str = ""

    @property
    def survived(self) -> list[str]:
        """Rows whose proof did not notice."""
        return [row for row, noticed in self.noticed.items() if not noticed]


def mutations() -> list[Mutation]:
    """All mutations of the file."""
    with (FOLDER / "mutations.toml").open("rb") as file:
        tables = tomllib.load(file)["mutation"]
    return [Mutation(**{**table, "rows": tuple(table["rows"])}) for table in tables]


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    """A copy of the source and the tests, in which imports find the copy."""
    with tempfile.TemporaryDirectory(prefix="vernier-mutants-") as name:
        root = Path(name) / "tree"
        shutil.copytree(REPO, root, ignore=shutil.ignore_patterns(*SKIPPED_FOLDERS), symlinks=True)
        yield root


def run_tests(root: Path, tests: Sequence[str]) -> tuple[dict[str, str], str]:
    """Run tests in a copy: their outcomes by name as pytest takes it, without cases; and the output."""
    report = root.parent / "report.xml"
    report.unlink(missing_ok=True)
    # The folders of a failed run would fill the disk, and bytecode of the last mutation must not be used.
    environment = {
        **os.environ,
        "PYTHONPATH": str(root / "src"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment["VERNIER_TEST_DATA"] = os.environ.get("VERNIER_TEST_DATA") or str(REPO.parent / "shared" / "data")
    options = ["-n0", "-q", "-p", "no:cacheprovider", "--tb=line", f"--junitxml={report}"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
        )
        output = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        return dict.fromkeys(tests, "failed"), f"no answer in {TIME_LIMIT_S} s"
    # Collection fails as a whole if the mutant cannot be imported: then every test has noticed.
    if not report.is_file():
        return dict.fromkeys(tests, "failed"), output
    return _outcomes(report, tests), output


def _outcomes(report: Path, tests: Sequence[str]) -> dict[str, str]:
    outcomes = Counter[tuple[str, str]]()
    collected = True
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        collected &= bool(case.get("classname"))
        outcomes[name, outcome] += 1
        outcomes[name.partition("[")[0], outcome] += 1
    # A file that fails at its import is one case without a class: all of its tests have noticed.
    return {
        test: next((o for o in ("failed", "passed", "skipped") if outcomes[test, o]), "" if collected else "failed")
        for test in tests
    }


def judge(mutation: Mutation, root: Path, rows: dict[str, Row]) -> Verdict:
    """Apply a mutation to a copy, run the tests of its rows, and restore the file."""
    before = (root / mutation.file).read_bytes() if (root / mutation.file).is_file() else b""
    mutation.apply(root)
    try:
        named = {key: mutation.tests(rows[key]) for key in mutation.rows}
        outcomes, output = run_tests(root, list(dict.fromkeys(test for tests in named.values() for test in tests)))
    finally:
        (root / mutation.file).write_bytes(before)
    noticed = {key: any(outcomes[test] == "failed" for test in tests) for key, tests in named.items()}
    return Verdict(mutation, noticed, output)


def failing(listed: Sequence[Mutation], root: Path, rows: dict[str, Row]) -> list[str]:
    """Tests that do not pass without any mutation: they would notice everything."""
    tests = dict.fromkeys(test for m in listed for key in m.rows for test in m.tests(rows[key]))
    outcomes, _ = run_tests(root, list(tests))
    return [test for test, outcome in outcomes.items() if outcome not in ("passed", "skipped")]


def problems(listed: Sequence[Mutation]) -> list[str]:
    """What is wrong with the table itself: texts that are not found, and rows that do not exist or have no test."""
    rows, wrong = {row.key: row for row in all_rows()}, []
    for mutation in listed:
        for key in mutation.rows:
            if key not in rows or not mutation.tests(rows[key]):
                wrong.append(f"{mutation}: there is no row {key} with a test that matches {mutation.only!r}")
        path = REPO / mutation.file
        times = path.read_text(encoding="utf-8").count(mutation.find) if path.is_file() else 0
        if times != 1:
            wrong.append(f"{mutation.file} contains {mutation.find!r} {times} times, not once ({mutation.rows})")
    return wrong


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 1 if a mutation was not noticed or its text was not found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", action="store_true", help="the quick ones that are part of the test suite")
    parser.add_argument("--only", default="", help="those whose file, text or rows match this regular expression")
    parser.add_argument("--check", action="store_true", help="only check that every text is found")
    chosen = parser.parse_args(arguments)
    listed = [
        m
        for m in mutations()
        if (m.quick or not chosen.sample) and re.search(chosen.only, f"{m.file} {m.find} {' '.join(m.rows)}")
    ]
    wrong = problems(listed)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    if chosen.check or wrong:
        return int(bool(wrong))
    rows, survived, broken = {row.key: row for row in all_rows()}, [], set[str]()
    with copy_of_the_tree() as root:
        if already := failing(listed, root, rows):
            print("These fail without any mutation:", *already, sep="\n")
            return 1
        for number, mutation in enumerate(listed, start=1):
            verdict = judge(mutation, root, rows)
            broken |= verdict.noticed.keys()
            survived += [f"{key}: {mutation}" for key in verdict.survived]
            missed = f"NOT NOTICED by {', '.join(verdict.survived)}" if verdict.survived else "noticed"
            print(f"{number}/{len(listed)} {mutation}: {missed}", flush=True)
    print(f"{len(listed)} mutations of {len(broken)} rows: {len(survived)} rows did not notice.", *survived, sep="\n")
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
