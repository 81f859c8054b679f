"""Which values are tried in which situation, and what is left alone with a reason."""

import pytest

from vernier.config import Config, override
from vernier.lab.tuning.candidates import MOST_VALUES, Setting, Situation, order_of, setting_to_try
from vernier.references import use

CPU = Situation(work="train", device="cpu", cores=8, real_data=True)


def tried(name: str, situation: Situation = CPU, **machine: object) -> Setting:
    config = Config()
    for setting, value in machine.items():
        config = override(config, f"machine.{setting}", value)
    return setting_to_try(name, config, situation)


def shown(setting: Setting) -> list[str]:
    return [candidate.shown for candidate in setting.candidates]


def situation(**changes: object) -> Situation:
    return Situation(**{**vars(CPU), **changes})


def test_the_value_in_use_is_not_tried_against_itself() -> None:
    for work in ("train", "infer"):
        for name in order_of(situation(work=work)):
            setting = tried(name, situation(work=work, allow_split=True, engines=("onnxruntime",)))
            assert setting.now not in shown(setting)
            assert len(setting.candidates) <= MOST_VALUES
            assert bool(setting.candidates) != bool(setting.left_out)


def test_ways_to_compile_are_tried_on_accelerators_where_compiling_was_chosen() -> None:
    gpu = situation(device="cuda")
    assert "compile" not in order_of(CPU)
    assert order_of(gpu)[-2:] == ("mode", "compile")
    assert shown(tried("compile", gpu, mode="compile")) == ["reduce-overhead", "max-autotune"]
    assert tried("compile", gpu).left_out == "there is no other value here"


def test_threads_are_halved() -> None:
    assert tried("threads").now == "8"
    assert shown(tried("threads")) == ["4", "2", "1"]
    assert shown(tried("threads", situation(cores=2))) == ["1"]


def test_one_core_has_no_other_number_of_threads() -> None:
    assert tried("threads", situation(cores=1)).left_out == "there is no other value here"


def test_batch_norm_statistics_are_not_changed_unasked() -> None:
    for name in ("procs", "process_batch"):
        assert use("allow_split", True) in (tried(name).left_out or "")
    assert shown(tried("procs", situation(allow_split=True))) == ["2 x 4 threads", "4 x 2 threads", "8 x 1 thread"]
    assert shown(tried("process_batch", situation(allow_split=True))) == ["128", "64", "32"]
    assert "smaller batch" in (tried("process_batch", situation(allow_split=True, own_batch=False)).left_out or "")


def test_exact_reduction_may_have_any_number_of_processes_with_the_same_threads() -> None:
    setting = tried("procs", reduction="exact")
    assert shown(setting) == ["2 x 1 thread", "4 x 1 thread", "8 x 1 thread"]
    assert all(set(candidate.changes) == {"procs"} for candidate in setting.candidates)
    assert "exact" in (tried("threads", reduction="exact").left_out or "")
    assert "exact" in (tried("mode", reduction="exact").left_out or "")
    assert "exact" in (tried("convolution", reduction="exact").left_out or "")


@pytest.mark.parametrize("name", ["threads", "allocator", "procs", "convolution"])
def test_an_accelerator_computes_by_itself(name: str) -> None:
    assert tried(name, situation(device="cuda")).left_out


def test_random_pixels_say_nothing_about_loader_threads() -> None:
    assert use("data", slot="PATH") in (tried("workers", situation(real_data=False)).left_out or "")
    assert shown(tried("workers")) == ["0", "1", "4", "8"]
    assert "0" not in shown(tried("workers", backend="dali-cpu"))


def test_winograd_is_tried_where_its_kernels_are_used() -> None:
    assert shown(tried("convolution")) == ["torch", "winograd"]
    assert shown(tried("convolution", convolution="torch")) == ["winograd"]
    assert "fp32" in (tried("convolution", precision="bf16").left_out or "")
    assert "channels-last" in (tried("convolution", channels_last=False).left_out or "")


def test_what_a_person_gave_stays() -> None:
    fixed = situation(fixed=frozenset({"threads", "mode"}), allow_split=True)
    for name in ("threads", "mode", "procs"):
        assert tried(name, fixed).left_out == "given, so it stays"


def test_inference_tries_the_engines_that_are_installed() -> None:
    infer = situation(work="infer", engines=("onnxruntime",))
    assert shown(tried("engine", infer)) == ["onnxruntime"]
    assert shown(tried("eval_batch", infer, eval_batch=32)) == ["8", "16", "64"]
    assert "only torch" in (tried("channels_last", infer, engine="onnxruntime").left_out or "")
    assert "pip install" in (tried("engine", situation(work="infer")).left_out or "")
    assert "fp32" in (tried("engine", infer, precision="bf16").left_out or "")
