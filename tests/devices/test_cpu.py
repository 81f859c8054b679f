"""The CPU, which is here."""

import os

import pytest

from vernier.devices import cpu as cpu_module
from vernier.devices.cpu import Cpu
from vernier.references import references, use


def test_bf16_on_a_cpu_without_hardware_wants_allow_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_module, "instruction_sets", lambda: frozenset({"avx2"}))
    assert Cpu().answer("bf16", "eager").verdict == "slow"
    works = [(each.name, each.value) for each in references(Cpu().refuse("bf16", "eager", allow_slow=False))]
    assert works == [("machine.precision", "fp32"), ("machine.allow_slow", True)]
    assert Cpu().refuse("bf16", "eager", allow_slow=True) == ""
    monkeypatch.setattr(cpu_module, "instruction_sets", lambda: frozenset({"avx512_bf16"}))
    assert Cpu().answer("bf16", "eager").verdict == "yes"


def test_compile_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    why = Cpu().refuse("fp32", "compile", allow_slow=True)
    assert "C++ compiler" in why
    assert use("machine.mode", "eager") in why


def test_a_machine_that_lists_amx_and_kills_what_uses_it_refuses_half_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_module, "instruction_sets", lambda: frozenset({"avx512_bf16", "amx_bf16", "amx_tile"}))
    monkeypatch.setattr(cpu_module, "_amx_works", lambda: False)
    answer = Cpu().answer("bf16", "eager")
    assert answer.verdict == "refused"
    assert "ONEDNN_MAX_CPU_ISA" in answer.instead
    monkeypatch.setattr(cpu_module, "_amx_works", lambda: True)
    assert Cpu().answer("bf16", "eager").verdict == "yes"


@pytest.mark.parametrize(("allocator", "keeps", "huge"), [("keep", 1, None), ("huge", 1, "1"), ("system", 0, None)])
def test_memory_is_allocated_as_the_setting_says(
    monkeypatch: pytest.MonkeyPatch, allocator: str, keeps: int, huge: str | None
) -> None:
    calls: list[str] = []
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", "")  # restored afterwards
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE")
    monkeypatch.setattr(cpu_module, "_keep_freed_memory", lambda: calls.append("keep"))
    device = Cpu()
    device.allocator = allocator
    device.prepare()
    assert (len(calls), os.environ.get("THP_MEM_ALLOC_ENABLE")) == (keeps, huge)
