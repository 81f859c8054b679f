"""The choice of a backend: refused with a reason where it cannot work."""

from collections.abc import Callable

import pytest
import torch

from tests.conftest import Done

no_accelerator = pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")


@no_accelerator
@pytest.mark.parametrize("built_for", [None, torch.device("cuda")])
@pytest.mark.parametrize(("backend", "kind"), [("dali-gpu", "cuda"), ("gaudi-media", "hpu")])
def test_a_backend_without_its_device_is_refused_and_native_offered(
    vernier_here: Callable[..., Done],
    tiny: list[str],
    backend: str,
    kind: str,
    built_for: torch.device | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def current_accelerator(check_available: bool = False) -> torch.device | None:
        return None if check_available else built_for

    monkeypatch.setattr(torch.accelerator, "current_accelerator", current_accelerator)
    done = vernier_here("train", *tiny, "--set", f"machine.backend={backend}", "--set", "augment.crop=random-resized")
    assert done.code == 2
    assert f"decodes on a {kind} device. This machine has no accelerator" in done.err
    assert "machine.backend=native" in done.err


def test_an_unknown_backend_gets_a_list_of_the_names(vernier_here: Callable[..., Done], tiny: list[str]) -> None:
    done = vernier_here("train", *tiny, "--set", "machine.backend=dali")
    assert done.code == 2
    assert "native, compiled, dali-cpu, dali-gpu, gaudi-media" in done.err
