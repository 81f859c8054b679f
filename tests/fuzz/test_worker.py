"""The fuzzer sees what it is for: errors of the wrong kind, crashes, hangs and memory. Each is done on purpose here."""

import ctypes
from collections.abc import Callable

import pytest

from vernier.errors import ConfigError

from . import worker
from .targets import TARGETS
from .targets.base import Case, Target
from .worker import Outcome, minimise, run_many


def _run(monkeypatch: pytest.MonkeyPatch, read: Callable[[bytes], object], contents: list[bytes]) -> Outcome:
    target = Target("on-purpose", lambda: {"one": {"file": b""}}, lambda folder: read((folder / "file").read_bytes()))
    monkeypatch.setitem(TARGETS, target.name, target)
    return run_many(
        target, lambda n: Case(target.name, "one", "file", contents[n]), range(len(contents)), until_cpu_s=60
    )


def _fail(content: bytes) -> None:
    if content == b"refuse":
        raise ConfigError("refused")
    if content == b"key":
        raise KeyError("x")
    if content == b"crash":
        ctypes.string_at(0)
    if content == b"memory":
        bytearray(256 << 20)
    if content == b"hang":
        while True:
            pass
    if content == b"hang in C":
        sum(range(10**12))


def test_every_kind_of_failure_is_seen_and_the_rest_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # A small limit: more memory takes a busy machine so long that it counts as a hang, and a large process that was
    # forked may give some back before.
    monkeypatch.setattr(worker, "MEMORY_LIMIT", 16 << 20)
    contents = [b"good", b"refuse", b"key", b"crash", b"memory", b"hang", b"hang in C", b"refuse", b"key", b"good"]
    outcome = _run(monkeypatch, _fail, contents)
    kinds = {contents[number]: kind for kind, number in outcome.failures.items()}
    assert kinds.keys() == {b"key", b"crash", b"memory", b"hang", b"hang in C"}
    assert kinds[b"key"].startswith("KeyError")
    assert kinds[b"crash"] == "crash by SIGSEGV"
    assert kinds[b"memory"] == "memory beyond the limit"
    assert "ang" in kinds[b"hang"]
    assert (outcome.inputs, outcome.typed) == (10, 2)


def test_an_input_becomes_as_small_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(content: bytes) -> None:
        if b"needle" in content:
            raise KeyError("x")

    outcome = _run(monkeypatch, read, [b"hay " * 50 + b"needle" + b" hay" * 50])
    (kind,) = outcome.failures
    case = Case("on-purpose", "one", "file", b"hay " * 50 + b"needle" + b" hay" * 50)
    assert minimise(case, kind).content == b"needle"


def test_a_case_survives_its_file() -> None:
    case = Case("config", "old", "recipe.json", bytes(range(256)))
    assert Case.from_text(case.to_text()) == case
