from pathlib import Path

from vernier.lab.page.profiles import Profile, Profiled, kernel_kind, profile
from vernier.records.profile import KernelTime, PhaseTimes, ProfileSummary, ProfilingOverhead


def subject(profiles: tuple[Profile, ...]) -> Profiled:
    return Profiled(name="run", path=Path("run"), kind="profile", profiles=profiles, page_folder=Path("pages"))


def test_a_run_without_profiles_has_no_such_section() -> None:
    assert profile([subject(())]) is None


def test_a_profile_shows_phases_kernels_and_its_cost() -> None:
    kernel = KernelTime(
        name="aten::mm", device="cpu", calls=4, total_ms=6.0, mean_ms=1.5, min_ms=1.0, max_ms=2.0, share=1.0
    )
    cost = ProfilingOverhead(ratio=1.25, profiled_step_s_median=5, other_step_s_median=4, n_profiled=2, n_others=7)
    times = PhaseTimes(steps=2, seconds={"forward": 0.2, "idle": 0.1}, share={"forward": 2 / 3, "idle": 1 / 3})
    shown = Profile(
        summary=ProfileSummary(method="m", steps=(3, 4), where_the_time_goes=times, overhead=cost),
        kernels=(kernel,),
        trace=Path("pages/run #1/trace.rank0.json.gz"),
    )
    section = profile([subject((shown,))])
    assert section is not None
    rows = {figure.name: list(figure.rows) for figure in section.figures}
    assert rows["where-0"] == [["the profiled steps", "forward", 200.0], ["the profiled steps", "idle", 100.0]]
    assert rows["kinds-0"] == [["matrix product", "cpu", 100.0, 6.0]]
    assert "Steps 3 to 4; a profiled step took 1.25 times as long as the 7 steady steps around it." in str(section.html)
    assert 'href="run%20%231/trace.rank0.json.gz"' in str(section.html)


def test_the_kind_of_a_kernel_is_judged_by_its_name() -> None:
    kinds = {
        "aten::convolution_backward": "convolution",
        "aten::native_batch_norm": "normalisation",
        "ncclDevKernel_AllReduce": "communication",
        "aten::_fused_sgd_": "optimizer",
        "ampere_sgemm_128x64": "matrix product",
        "whatever": "other",
    }
    assert {name: kernel_kind(name) for name in kinds} == kinds
