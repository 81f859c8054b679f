"""The commands and Python functions of the laboratory, as the core finds them: the entry point `lab` of
`vernier.commands`. Requests are in `lab.requests`, functions in `lab.api`, what is printed in `lab.cli`."""

from vernier.requests.registry import CommandSet, within

_API = "vernier.lab.api"
COMMANDS = CommandSet(
    commands=within(
        "vernier.lab",
        {
            "bench train": ("benchmarks:BenchTrain", "benchmarks:train"),
            "bench infer": ("benchmarks:BenchInfer", "benchmarks:infer"),
            "bench scaling": ("benchmarks:BenchScaling", "benchmarks:scaling"),
            "bench data": ("benchmarks:BenchData", "benchmarks:data"),
            "bench arm": ("benchmarks:BenchArm", "benchmarks:arm"),
            "profile train": ("profiling:ProfileTrain", "tuning:profile"),
            "profile infer": ("profiling:ProfileInfer", "tuning:profile"),
            "tune train": ("tuning:TuneTrain", "tuning:tune"),
            "tune infer": ("tuning:TuneInfer", "tuning:tune"),
            "compare": ("comparing:Compare", "comparing:compare"),
            "plan": ("planning:Plan", "planning:plan"),
            "submit": ("planning:Submit", "planning:submit"),
            "study run": ("studies:StudyRun", "studies:run"),
            "study analyze": ("studies:StudyAnalyze", "studies:analyze"),
            "study baseline": ("studies:StudyBaseline", "studies:baseline"),
            "study check": ("studies:StudyCheck", "studies:check"),
            "study merge": ("studies:StudyMerge", "studies:merge"),
            "study design": ("studies:StudyDesign", "studies:design"),
            "doctor": ("machine:Doctor", "machine:doctor"),
        },
    ),
    functions={
        "bench_train": f"{_API}.benchmarks",
        "bench_infer": f"{_API}.benchmarks",
        "bench_scaling": f"{_API}.benchmarks",
        "bench_data": f"{_API}.benchmarks",
        "bench": f"{_API}.benchmarks",
        "Benchmark": f"{_API}.benchmarks",
        "tune_train": f"{_API}.tuning",
        "tune_infer": f"{_API}.tuning",
        "tune": f"{_API}.tuning",
        "Tuning": f"{_API}.tuning",
        "profile_train": f"{_API}.profiling",
        "profile_infer": f"{_API}.profiling",
        "compare": f"{_API}.comparisons",
        "Comparison": f"{_API}.comparisons",
        "plan": f"{_API}.planning",
        "submit": f"{_API}.planning",
        "study_run": f"{_API}.studies",
        "study_analyze": f"{_API}.studies",
        "study_baseline": f"{_API}.studies",
        "study_check": f"{_API}.studies",
        "study_merge": f"{_API}.studies",
        "study_design": f"{_API}.studies",
        "study": f"{_API}.studies",
        "Study": f"{_API}.studies",
        "doctor": f"{_API}.machine",
    },
    groups={
        "bench": "Measure training, inference, scaling and loading, with confidence intervals.",
        "tune": "Find the fastest settings of this machine for a recipe.",
        "profile": "Profile training or inference steps: kernel table, trace, memory, and where the time goes.",
        "study": "Device variability: design a study, measure every device, analyze, learn a baseline, check a "
        "machine.",
    },
    sections={
        "Measure": ("bench", "profile", "tune", "compare", "plan", "submit"),
        "Fleets": ("study",),
        "More": ("doctor",),
    },
    default_actions={"tune": "train", "profile": "train"},
    other_names={"benchmark": "bench", "study analyse": "study analyze"},
    moved={
        ("plan", "--submit"): ("submit", "--to"),
        ("tune", "--for"): ("tune", ""),
        ("profile", "--infer"): ("profile infer", None),
    },
    internal=("bench arm",),
)
