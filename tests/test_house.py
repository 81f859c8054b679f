"""The habits of the house that can be checked by reading the source."""

import ast
import re
from itertools import combinations
from pathlib import Path

import pytest

from tests.house_figures import PARTS, SOURCE, entries, files_of, measure

FILES = sorted(SOURCE.rglob("*.py"))
TESTS = Path(__file__).parent
FOLDERS = sorted({p.parent for p in FILES})
JSON_READERS = (
    "references.py",  # values in messages
    "store/",
    "config/parsing.py",
    "data/sources/",  # annotations and tables of data sets
    "compat/preparing/",
    "compat/tfrecord/",
    "data/shapes/",
    "compat/logs/",  # logs of other tools
    "lab/logs/",
    "lab/bench/",  # answers of measuring processes
    "engine/processes/",  # error files of PyTorch's launcher, and what processes tell each other
    "lab/profile/steps.py",  # PyTorch's own trace
)
FAMILIES = tuple(f"models/{name}.py" for name in ("resnet", "convnext", "airbench", "ssd"))


@pytest.mark.parametrize(
    ("pattern", "homes"),
    [
        (r"torch\.(cuda|hpu|mps|xpu)\b", ("devices/", "compat/devices/")),
        (
            r"\b(pynvml|pyhlml|habana_frameworks)\b",
            ("compat/devices/", "lab/telemetry/", "compat/loaders/gaudi_media.py"),
        ),
        (r"time\.(time|perf_counter|monotonic)\b|import time\b", ("clock.py",)),
        (r"(?<![.\w])print\(", ()),
        (
            r"\"(events\.jsonl|run\.json|config\.json|environment\.json|bench\.json)\"",
            ("store/", "engine/inference/preparation.py"),
        ),  # timm's
        (r"\bfcntl\b", ("store/locks.py",)),
        (r"\bLOCAL_RANK\b|\bSLURM_PROCID\b", ("engine/processes/launch.py", "compat/devices/hpu.py")),  # Gaudi sets it
        (r"torch\.(_C|_dynamo|_inductor|_foreach_\w+|jit\.CompilationUnit)\b", ("torch_private.py",)),
        (r"XDG_CACHE_HOME|\"VERNIER_HOME\"\)", ("folders.py",)),
        # A remote shard is opened before it is renamed, so that no other process can remove it in between.
        (r"\.with_name\(f?\"\.[^\"]*(tmp|partial|part|writing)", ("store/", "compat/remote.py")),
        (r"(?<![.\w])key\((?!Stream\.|at, r)", ("randomness.py",)),
        (r"\bjson\.loads?\(", JSON_READERS),
        # Other programs have formats of their own: scripts of the SC22 study, and Slurm.
        (
            r"divmod\(.*\b60\)|two_digits\(.*2\*\*30",
            ("quantities.py", "lab/logs/as_study.py"),
        ),
        # Layers and classes of a model are known to the file of its family alone.
        (
            r"[\"'](\^|backbone\.)?(conv1|bn1|layer[\d{\\\\]|fc|conf|loc|extras|downsample|features)[.\"'\\\\{]",
            (*FAMILIES, "compat/tensorflow.py"),  # which has the order in which TensorFlow created the layers
        ),
        (
            r"(isinstance|import).*\b(ResNet|Trunk|Bottleneck|BasicBlock|AirbenchNet|ConvNext|Ssd|BlurConv2d)\b",
            FAMILIES,
        ),
    ],
)
def test_each_concern_lives_in_one_place(pattern: str, homes: tuple[str, ...]) -> None:
    strays = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in FILES
        if not path.relative_to(SOURCE).as_posix().startswith(homes or ("nowhere",))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(pattern, line.split("#")[0])
    ]
    assert strays == []


def _imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    absolute = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    modules = {node.module for node in absolute if node.module}
    return modules | {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}


FOUNDATION = {
    "addresses",
    "errors",
    "clock",
    "randomness",
    "references",
    "folders",
    "cores",
    "host_memory",
    "own_code",
    "frozen",
    "plugins",
    "quantities",
    "signals",
    "templates",
    "torch_private",
    "typed",
    "version",
    "wording",
}
MAY_IMPORT = {
    "records": {"errors", "frozen", "own_code", "references", "typed"},
    "config": {"addresses", "errors", "frozen", "own_code", "plugins", "quantities", "references", "typed", "wording"},
    "requests": {"addresses", "config", "errors", "frozen", "own_code", "plugins", "quantities", "references", "typed"},
    "store": {"records", "config", *FOUNDATION},
    "models": {"config", "store", *FOUNDATION},
    "optim": {"config", "models", *FOUNDATION},
    "devices": {"config", "records", *FOUNDATION},
    "data": {"config", "store", "records", "devices", *FOUNDATION},
    "tasks": {"config", "store", "records", "data", "models", "devices", *FOUNDATION},
    "recipes": {"config", "models", "data", "optim", "records", *FOUNDATION},
    "measure": {"config", "store", "records", "models", "optim", "devices", *FOUNDATION},
    "engine": {"config", "store", "records", "models", "optim", "devices", "data", "tasks", "measure", *FOUNDATION},
    "report": {"config", "store", "records", "models", "data", "tasks", "measure", *FOUNDATION},
}
MAY_IMPORT["api"] = {*MAY_IMPORT, *FOUNDATION} - {"tasks", "optim"}
MAY_IMPORT["cli"] = {*MAY_IMPORT, *FOUNDATION}
CORE = frozenset(MAY_IMPORT)
MAY_IMPORT |= {
    "kernels": {"config", "data", "devices", "engine", *FOUNDATION},
    "compat": {"lab", *CORE, *FOUNDATION},
    "contracts": {*CORE, *FOUNDATION},
    "lab": {*CORE, *FOUNDATION},
}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_from_below(package: str) -> None:
    allowed = {"vernier", f"vernier.{package}", *(f"vernier.{name}" for name in MAY_IMPORT[package])}
    wrong = [
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in (SOURCE / package).rglob("*.py")
        for name in sorted(_imports(path))
        if name.split(".")[0] == "vernier" and ".".join(name.split(".")[:2]) not in allowed
    ]
    assert wrong == []


@pytest.mark.parametrize("part", ["kernels", "compat", "lab"])
def test_nothing_imports_a_part_that_plugs_in(part: str) -> None:
    """Entry points find it, so that everything else works without it."""
    wrong = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in FILES
        if not path.is_relative_to(SOURCE / part)
        # Formats of external logs produce the laboratory's common form of a log.
        and (part, path.relative_to(SOURCE).parts[0]) != ("lab", "compat")
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(rf"(from|import|[\"'])\s*vernier\.{part}\b|from (vernier|\.) import .*\b{part}\b", line)
    ]
    assert wrong == []


def test_neighbours_in_a_package_are_imported_relatively_and_others_absolutely() -> None:
    wrong = []
    for path in FILES:
        package = ".".join(["vernier", *path.parent.relative_to(SOURCE).parts])
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and path.parent != SOURCE:
                same = node.level == 0 and (node.module or "").startswith(f"{package}.")
                if same or node.level > 1:
                    wrong.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    assert wrong == []


def test_every_package_has_a_place_in_the_layers() -> None:
    packages = {p.name for p in entries(SOURCE) if p.is_dir()}
    modules = {p.stem for p in entries(SOURCE) if p.suffix == ".py"}
    assert packages == {*MAY_IMPORT}
    assert modules == FOUNDATION


def test_every_module_says_what_it_owns() -> None:
    silent = [p for p in FILES if len(ast.get_docstring(ast.parse(p.read_text())) or "") < 20]
    assert [str(p.relative_to(SOURCE)) for p in silent] == []


def test_every_package_says_what_it_owns_and_where_its_neighbours_are() -> None:
    brief = [
        str(folder.relative_to(SOURCE))
        for folder in FOLDERS
        if folder != SOURCE and len(ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "") < 120
    ]
    assert brief == []


def test_no_two_names_in_a_folder_differ_by_an_ending() -> None:
    twins = [
        f"{folder.relative_to(SOURCE)}: {a}, {b}"
        for folder in FOLDERS
        for a, b in combinations(sorted({p.stem for p in entries(folder)}), 2)  # a module and its C++ share a name
        if b.startswith(a) and len(b) - len(a) <= 2
    ]
    assert twins == []


def test_no_file_is_spelt_like_a_package() -> None:
    prefixed = [
        f"{folder.relative_to(SOURCE)}/{child.name}"
        for folder in FOLDERS
        for child in entries(folder)
        for other in entries(folder)
        if child != other and child.stem.startswith(f"{other.stem}_")
    ]
    assert prefixed == []


# Participles and pronouns that say when a value came to be, never what it is. `asked` is a key of bench.json.
VAGUE_NAMES = {"found", "kept", "made", "said", "told", "wanted", "asked", "heard", "theirs", "met", "place"}


def _assigned_names(tree: ast.Module) -> set[str]:
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names |= {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    return names | {f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.ClassDef)}


def test_names_are_nouns_for_what_a_thing_is() -> None:
    vague = {
        str(path.relative_to(SOURCE)): sorted(names)
        for path in FILES
        if (names := _assigned_names(ast.parse(path.read_text())) & VAGUE_NAMES) and path.name != "bench.py"
    }
    assert vague == {}


BUDGETS = {"core": 238_890, "lab": 127_500, "compat": 52_240, "kernels": 6_600}
"""The tokens that each part may have. A change that needs more removes something else first: no commit raises a number
here. `make figures` prints what is used."""
BUDGET = 420_000
"""The tokens of all parts together, which is less than their sum: what one part gains another one gives."""


@pytest.mark.parametrize("part", PARTS)
def test_a_part_stays_within_its_budget(part: str) -> None:
    used = measure(files_of(part)).tokens
    assert used <= BUDGETS[part], f"{part} has {used:,} tokens: remove something before you add"


def test_all_parts_stay_within_their_budget() -> None:
    used = measure().tokens
    assert used <= BUDGET, f"all parts have {used:,} tokens: remove something before you add"


def test_every_package_is_in_one_part() -> None:
    packages = [package for part in PARTS.values() for package in part]
    assert sorted(packages) == sorted(MAY_IMPORT)


def test_the_source_stays_typed_and_formatted() -> None:
    figures = measure()
    assert figures.untyped_dicts < 60
    assert figures.format_off < 20
    assert figures.lines_over_120 == 0


EDGES = (
    "compat/preparing/requests.py",
    "compat/shells/",
    "cli/",
    "api/",
    "requests/",
    "lab/cli/",
    "lab/api/",
    "lab/requests/",
    "lab/commands.py",
)
OTHER_PROGRAMS: tuple[str, ...] = (
    "data/sources/containers/shard_index.py",  # flags of tar, in advice on how to write the archive again
    "compat/pytest_options.py",  # declares options of pytest
    "report/model_card.py",  # writes a document for people who have the model alone
    "version.py",  # git
)
"""Modules below the edge that contain command lines of other programs, or write documents and scripts."""
_FLAG = re.compile(r"(?<![\w-])--[a-z]")


def test_no_message_below_the_edge_names_a_flag() -> None:
    """`references` name options; only the edge knows whether a person typed a flag or passed a keyword argument."""
    strays = []
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(EDGES) or name in OTHER_PROGRAMS:
            continue
        tree = ast.parse(path.read_text())
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        strays += [
            f"{name}:{node.lineno}: {node.value.strip()[:80]}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements
            if _FLAG.search(node.value)
        ]
    assert strays == []


def _module_of(test: Path) -> Path:
    """The source file, or package, that a test file is named after."""
    relative = test.relative_to(TESTS)
    name = relative.stem.removeprefix("test_")
    return SOURCE / relative.parent / (f"__{name}__.py" if name in ("init", "main") else f"{name}.py")


OTHER_TESTS = (
    "integration",
    "device_suite",
    "five_systems",
    "golden",
    "traps",
    "chaos",
    "fuzz",
    "documentation",
    "hosts",
    "test_house.py",
    "test_docs.py",
    "test_examples.py",
)
WITHOUT_A_TEST_FILE = ("__init__.py", "__main__.py", "test_contracts.py")  # the last one is a test


def test_every_test_file_is_named_after_a_module() -> None:
    strangers = [
        str(test.relative_to(TESTS))
        for test in sorted(TESTS.rglob("test_*.py"))
        if test.relative_to(TESTS).parts[0] not in OTHER_TESTS
        and not _module_of(test).exists()
        and not (_module_of(test).with_suffix("") / "__init__.py").exists()
    ]
    assert strangers == []


def test_every_module_has_a_test_file() -> None:
    missing = [
        str(path.relative_to(SOURCE))
        for path in FILES
        if path.name not in WITHOUT_A_TEST_FILE
        and not (TESTS / path.relative_to(SOURCE).parent / f"test_{path.name}").exists()
    ]
    assert missing == []
