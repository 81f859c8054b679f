"""Studies and tables of others, as `vernier study analyze`, `baseline`, `check`, `merge` and `report` read them."""

import shutil
from pathlib import Path

from vernier.lab.reading.columns import ColumnOptions
from vernier.lab.reading.tables import read_table
from vernier.lab.reading.text import check_lines, study_lines, study_rows
from vernier.lab.study.analysis import analyze
from vernier.lab.study.baseline import check, learn, read_baseline
from vernier.lab.study.files import merge
from vernier.report.page.collect import collect

from .base import Files, Target, attempt
from .files import golden, golden_run
from .logs import logs, render

_SC22 = (
    "exp,reps,cabinet,node,device,train_time,mean_iter_dur,med_iter_dur,max_iter_dur,min_iter_dur,uuid,freq,temp,pwr\n"
    + "".join(
        f"resnet,{r},c196,{n:03d},{d},120.5,0.2{d}1,0.2{d},0.5,0.1{r},GPU-{n}{d},1380,6{d},24{r}.5\n"
        for n in range(3)
        for d in range(2)
        for r in range(3)
    )
)
_OTHER = "serial;time_ms;clock\n" + "".join(
    f"g{d};{100 + d + r / 10:.1f};{1300 + d}\n" for d in range(6) for r in range(3)
).replace(".", ",")


def _tables() -> dict[str, Files]:
    return {"sc22": {"table.csv": _SC22.encode()}, "other": {"table.csv": _OTHER.encode()}, **logs()}


def _read_table(folder: Path) -> None:
    path = next(p for p in folder.iterdir() if p.is_file())
    options = ColumnOptions(columns={"step_time": "time_ms", "device": "serial"}) if folder.name == "other" else None
    table = read_table([path], options)
    attempt(lambda: learn(table))
    analysis = analyze(table, 0.01)
    study_lines(analysis)
    study_rows(analysis, None)
    if folder.name == "sc22":
        render(collect([path]))


def _study_examples() -> dict[str, Files]:
    study = {
        path: content for path, content in golden_run("study", "*", "study/*/*/*").items() if "kernels" not in path
    }
    return {
        "study": study,
        "baseline": {"baseline.json": golden("baseline.json"), **_small(study)},
        "analysis": {"analysis.json": golden("analysis.json")},
    }


def _small(study: Files) -> Files:
    return {f"study/{path}": content for path, content in study.items()}


def _read_study(folder: Path) -> None:
    if folder.name == "analysis":
        render(collect([folder / "analysis.json"]))
        return
    if folder.name == "baseline":
        baseline = read_baseline(folder / "baseline.json")
        check_lines(check(baseline, read_table([folder / "study"]), 0.01))
        return
    attempt(lambda: study_lines(analyze(read_table([folder]), 0.01)))
    attempt(lambda: render(collect([folder])))
    merged = folder.parent / "merged"
    shutil.rmtree(merged, ignore_errors=True)
    attempt(lambda: merge([folder], merged))


TARGETS = (
    Target("tables", _tables, _read_table, text=True),
    Target("study", _study_examples, _read_study, spared=("study/study/",), text=True),
)
