"""Inputs that are guided by coverage, with atheris (libFuzzer) where it is installed: `pip install atheris`.

libFuzzer keeps inputs that reach new lines of Vernier and damages them further, with the mutations of all inputs.
It takes over the process that it runs in, so every target gets a process of its own: `python -m tests.fuzz.guided
TARGET INPUTS SEED FOLDER`, which writes what fails to FOLDER/failures.jsonl.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .targets.base import Case, Target
    from .worker import Outcome

FAILURES = "failures.jsonl"
_LONGEST_S = 1800


def is_installed() -> bool:
    return importlib.util.find_spec("atheris") is not None


def run_guided(name: str, inputs: int, seed: str) -> "tuple[Outcome, dict[str, Case]]":
    """Run so many inputs of a target, and the first input of every kind of failure."""
    from .targets.base import Case
    from .worker import Outcome

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.fuzz.guided", name, str(inputs), seed, folder]
        before = os.times()
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=False)
        after = os.times()
        failures = Path(folder) / FAILURES
        lines = [json.loads(line) for line in failures.read_text().splitlines()] if failures.exists() else []
        counts = json.loads((Path(folder) / "counts.json").read_text())
    cases = {line["kind"]: Case.from_text(line["case"]) for line in lines}
    if done.returncode and not cases:
        raise RuntimeError(f"The guided fuzzer of {name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Outcome(inputs=counts["inputs"], typed=counts["typed"], cpu_s=cpu_s), cases


def _split(target: "Target", data: bytes) -> tuple[str, str, bytes]:
    """The first byte of an input of libFuzzer says which file is damaged."""
    example, path = target.damageable[(data[0] if data else 0) % len(target.damageable)]
    return example, path, data[1:]


def _fuzz(atheris: Any, name: str, inputs: int, seed: str, folder: Path) -> None:
    with atheris.instrument_imports(include=["vernier"]):
        from .mutations import mutate
        from .targets import TARGETS
        from .targets.base import Case
        from .worker import Runner, limit_process

    target, known = TARGETS[name], set[str]()
    counts = {"inputs": 0, "typed": 0}
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, (example, path) in enumerate(target.damageable[:256]):
        (corpus / str(number)).write_bytes(bytes([number]) + target.sound[example][path])
    runner = Runner(target, folder / "files")
    limit_process()

    def run(data: bytes) -> None:
        case = Case(name, *_split(target, data))
        kind = runner.run(case)
        counts["inputs"] += 1
        counts["typed"] += kind == ""
        if counts["inputs"] % 100 == 0 or counts["inputs"] >= inputs:
            (folder / "counts.json").write_text(json.dumps(counts))
        if kind and kind not in known:
            known.add(kind)
            with (folder / FAILURES).open("a") as file:
                file.write(json.dumps({"kind": kind, "case": case.to_text()}) + "\n")

    def damage(data: bytes, max_size: int, number: int) -> bytes:
        _, path, content = _split(target, data)
        return (data[:1] or b"\0") + mutate(Random(number), path, content, target.donors(path))[: max_size - 1]

    options = [f"-runs={inputs}", f"-seed={Random(seed).randrange(1, 2**31)}", "-max_len=200000", "-rss_limit_mb=0"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/", str(corpus)], run, custom_mutator=damage)
    atheris.Fuzz()


if __name__ == "__main__":
    import atheris

    _fuzz(atheris, sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
