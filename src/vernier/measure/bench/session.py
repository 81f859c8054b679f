"""A benchmark from its flags to its run directory: which arms there are, running them, what is kept and what is shown."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeVar

from vernier.config import Config, from_dict, override, to_dict, tree_differences
from vernier.errors import ConfigError, RunFailed
from vernier.measure.bench.arms import Arm, Round, Tell, memory_limit, run_arms
from vernier.measure.bench.measuring import METHOD, Plan
from vernier.measure.bench.table import add_scaling, compared, markdown, pooled, same_for_all
from vernier.measure.bench.versions import Version, fitted, here, version
from vernier.measure.statistics.comparison import DEFAULT_RUNS, DEFAULT_TOLERANCE
from vernier.store import RunDir

T = TypeVar("T")
What = Literal["train", "infer"]
HERE = "here"
Progress = Callable[[int, int, int], None]
"""Hears how many processes are done, how many there are, and in how many rounds."""


@dataclass(frozen=True)
class Layout:
    """How many processes, with how many threads each (None: as configured); `apart`: without exchanging gradients."""

    procs: int
    threads: int | None = None
    apart: bool = False

    @property
    def labels(self) -> dict[str, Any]:
        threads = {} if self.threads is None else {"threads": self.threads}
        return {"procs": self.procs, **threads, **({"exchange": "none"} if self.apart else {})}


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What is to be measured: every combination of the lists is an arm. Batches are images a device."""

    what: What
    config: Config
    batches: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    layouts: tuple[Layout, ...] = ()
    scenarios: tuple[str, ...] = ()
    loads: tuple[float, ...] = ()
    rate_per_s: float | None = None
    weights_of: str | None = None
    plan: Plan = field(default_factory=Plan)
    repeats: int = DEFAULT_RUNS
    seed: int = 0
    scaling: Literal["", "weak", "strong"] = ""
    against: str | None = None
    tolerance: float = DEFAULT_TOLERANCE
    memory_limit_bytes: int | None = None


def parsed(text: str, convert: Callable[[str], T], flag: str) -> tuple[T, ...]:
    """`1,2,4` as values, none twice."""
    try:
        values = tuple(convert(part.strip()) for part in text.split(",") if part.strip())
    except ConfigError as error:
        raise ConfigError(f"{flag} {text}: {error}") from None
    except ValueError:
        raise ConfigError(f"{flag} takes values separated by commas, such as 1,2,4; not {text!r}.") from None
    if not values:
        raise ConfigError(f"{flag} {text!r} names nothing.")
    return tuple(dict.fromkeys(values))


def positive(text: str) -> int:
    """A whole number of at least one."""
    value = int(text)
    if value < 1:
        raise ConfigError(f"{value} is out of range: it must be 1 or more.")
    return value


def layout(text: str) -> Layout:
    """`4`: processes; `4x2`: with two threads each."""
    procs, times, threads = text.partition("x")
    return Layout(positive(procs), positive(threads) if times else None)


def share(text: str) -> float:
    """`1%` or `0.01`, as a share between 0 and 1."""
    try:
        value = float(text[:-1]) / 100 if text.strip().endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise ConfigError(f"{text!r} is no share: write 1% or 0.01.")
    return value


# ---------------------------------------------------------------------------------------------------------------- arms


def arms_of(ask: Ask, side: str | None = None, source: Path | None = None) -> list[Arm]:
    """Every combination that was asked for."""
    machine = ask.config.machine
    own = machine.eval_batch if ask.what == "infer" else max(1, ask.config.recipe.global_batch // machine.procs)
    lists: dict[str, tuple[Any, ...]] = {
        "batch": ask.batches or (own,), "precision": ask.precisions or (machine.precision,), "mode": ask.modes or (machine.mode,),
        "layout": ask.layouts or (Layout(machine.procs),),
    }  # fmt: skip
    if ask.what == "infer":
        lists["scenario"] = ask.scenarios or ("offline",)
    made = []
    for values in product(*lists.values()):
        labels = dict(zip(lists, values, strict=True))
        labels |= labels.pop("layout").labels
        for load in ask.loads if labels.get("scenario") == "server" and ask.rate_per_s is None else (None,):
            extra = {} if load is None else {"load": load}
            made.append(_arm(ask, {**labels, **extra, **({"side": side} if side else {})}, source))
    return _named(made)


def _named(arms: list[Arm]) -> list[Arm]:
    """Names of what tells the arms apart; the batch is always in them."""
    known = dict.fromkeys(k for a in arms for k in a.labels)
    varying = [k for k in known if k in ("batch", "side") or len({str(a.labels.get(k)) for a in arms}) > 1]
    return [replace(a, name=" ".join(f"{k}={a.labels[k]}" for k in varying if k in a.labels)) for a in arms]


def _arm(ask: Ask, labels: dict[str, Any], source: Path | None) -> Arm:
    config = ask.config
    settings = {
        "machine.precision": labels["precision"],
        "machine.mode": labels["mode"],
        "machine.procs": labels["procs"],
    }
    if "threads" in labels:
        settings["machine.threads"] = labels["threads"]
    if ask.what == "infer":
        settings["machine.eval_batch"] = labels["batch"]
    elif ask.scaling != "strong":
        settings |= {
            "global_batch": labels["batch"] * labels["procs"],
            "machine.accumulation": 1,
            "machine.process_batch": None,
        }
    for name, value in settings.items():
        config = override(config, name, value)
    spec = {
        "what": ask.what, "config": to_dict(config), "plan": asdict(ask.plan), "run": ask.weights_of, "seed": ask.seed,
        "apart": "exchange" in labels, "scenario": labels.get("scenario"), "load_share": labels.get("load"), "rate_per_s": ask.rate_per_s,
        "memory_limit_bytes": ask.memory_limit_bytes or memory_limit(config.machine.device),
    }  # fmt: skip
    return Arm(name="", labels=labels, spec=spec, source=source)


@contextlib.contextmanager
def both_sides(ask: Ask) -> Iterator[tuple[list[Arm], list[str]]]:
    """The arms, with those of the other side where one is asked for; and what a reader should know about the sides."""
    if ask.against is None:
        yield arms_of(ask), []
        return
    path = Path(ask.against)
    a_run = bool(ask.against) and path.is_dir()
    theirs, reference = _asked_by(ask, path) if a_run else (ask, ask.against)
    side = path.resolve().name if a_run else ask.against
    with version(reference) as other:
        others, left_out = _told(arms_of(theirs, side, other.source), other, side)
        facts = [here(), f"{side}: commit {other.commit[:12]}"]
        if left_out:
            facts.append(f"{side} does not know, and here is at its default: {', '.join(left_out)}")
        yield arms_of(ask, HERE) + others, [*facts, *_unlike(ask, theirs)]


def _told(arms: list[Arm], other: Version, side: str) -> tuple[list[Arm], list[str]]:
    """The arms as another version understands them, and the names of settings that it does not know."""
    found, left_out = [], dict[str, None]()
    for arm in arms:
        config, unknown = fitted(arm.spec["config"], other.settings, side)
        left_out |= dict.fromkeys(unknown)
        found.append(replace(arm, spec={**arm.spec, "config": config}))
    return found, list(left_out)


def _unlike(ask: Ask, theirs: Ask) -> list[str]:
    """In which settings the two sides differ, besides their code."""
    pairs = tree_differences(to_dict(ask.config), to_dict(theirs.config))
    if ask.weights_of != theirs.weights_of:
        pairs["run"] = (ask.weights_of, theirs.weights_of)
    return [f"the sides differ in {name}: {mine!r} here, {other!r} there" for name, (mine, other) in pairs.items()]


def _asked_by(ask: Ask, path: Path) -> tuple[Ask, str]:
    """What an earlier benchmark measured, and the commit it ran."""
    run = RunDir.open(path)
    earlier = run.read_bench().get("asked")
    if not isinstance(earlier, dict) or not {"what", "config"} <= earlier.keys():
        raise ConfigError(f"--against {path}: its bench.json does not say what was measured.")
    if earlier["what"] != ask.what:
        raise ConfigError(
            f"--against {path} is a benchmark of {earlier['what']}, this one is of {ask.what}: "
            f"use vernier bench {earlier['what']}."
        )
    commit = run.read_environment().get("git_commit") or ""
    if not commit or commit.endswith("-dirty"):
        raise ConfigError(
            f"--against {path}: that benchmark ran {'a changed working copy' if commit else 'an unknown version'} "
            f"({commit or 'no commit recorded'}), which cannot be run again. Give a git reference instead, or compare what "
            f"was measured apart: vernier compare {path} RUN."
        )
    told: dict[str, Any] = {
        k: tuple(earlier.get(k, ())) for k in ("batches", "precisions", "modes", "scenarios", "loads")
    }
    told |= {k: earlier.get(k) for k in ("rate_per_s", "weights_of")}
    layouts = earlier.get("layouts") or [{"procs": procs} for procs in earlier.get("procs", ())]
    told["layouts"] = tuple(Layout(**each) for each in layouts)
    return replace(ask, config=from_dict(Config, earlier["config"]), **told), commit


# ------------------------------------------------------------------------------------------------------------- running


def run_bench(ask: Ask, out: Path, progress: Progress) -> tuple[RunDir, dict[str, Any]]:
    """Measure everything that was asked for; the run directory holds every sample from the first result on.

    After Ctrl-C it returns what there is, and `found["stopped"]` says so; before the first result nothing is left behind.
    """
    with both_sides(ask) as (arms, facts):
        name = f"bench-{'scaling' if ask.scaling else ask.what}-{ask.config.recipe.name}"
        run = RunDir.create(out, name)
        with run.locked():
            measured = from_dict(Config, arms[0].spec["config"]) if len(arms) == 1 else ask.config
            run.write_config(to_dict(override(measured, "name", name)))
            run.write_status("running")
            asked = {**asdict(ask), "config": to_dict(ask.config)}
            done: list[Round] = []
            ours = {a.name for a in arms if a.source is None}

            def keep(rounds: list[Round], total: int) -> None:
                done[:] = rounds
                result = rounds[-1].result
                if result["status"] == "ok" and rounds[-1].arm in ours and not run.read_environment():
                    run.write_environment({k: v for k, v in result["environment"].items() if k != "schema"})
                run.write_bench(*_kept(ask, asked, arms, rounds, facts, name))
                progress(len(rounds), total, ask.repeats)

            progress(0, len(arms) * ask.repeats, ask.repeats)
            stopped = _run_all(ask, arms, keep, run, done)
            found, text = _kept(ask, asked, arms, done, [*facts, *stopped], name)
            _refuse_nothing(found, run)
            run.write_bench(found, text)
            run.write_status("stopped" if stopped else "finished", summary=_summary(ask, found))
    return run, {**found, "stopped": bool(stopped)}


def _run_all(ask: Ask, arms: Sequence[Arm], keep: Tell, run: RunDir, done: list[Round]) -> list[str]:
    """Run the arms; says what was left undone after Ctrl-C, where something had been done."""
    total = len(arms) * ask.repeats
    try:
        run_arms(arms, repeats=ask.repeats, seed=ask.seed, tell=keep)
    except KeyboardInterrupt:
        if not done:
            shutil.rmtree(run.path)
            raise
        missing = [a.name for a in arms if a.name not in {r.arm for r in done}]
        never = f"; never measured: {', '.join(missing)}" if missing else ""
        return [f"INTERRUPTED after {len(done)} of {total} processes{never}"]
    except (ConfigError, RunFailed) as error:
        if not done:
            shutil.rmtree(run.path)
            raise
        run.write_status("failed", reason=str(error))
        raise RunFailed(f"{error} The {len(done)} results before it, of {total}, are in {run.path}.") from None
    return []


def _refuse_nothing(found: dict[str, Any], run: RunDir) -> None:
    """Raise when no arm has a figure: nothing is left of what this machine refuses altogether."""
    first = found["rows"][0]
    if any(row["status"] == "ok" for row in found["rows"]):
        return
    if all(row["status"] == "refused" for row in found["rows"]):
        shutil.rmtree(run.path)
        raise ConfigError(first["why"])
    reason = f"{first['status']}: {first['why']}"
    run.write_status("failed", reason=reason)
    raise RunFailed(f"Nothing could be measured: {reason}")


def _summary(ask: Ask, found: dict[str, Any]) -> dict[str, Any]:
    """For run.json; one measured training stands where that of a run would, so that plans can be made from it."""
    summary = {"rows": found["rows"], "compared": found["compared"]}
    good = [r for r in found["rows"] if r["status"] == "ok"]
    if ask.what != "train" or len(good) != 1:
        return summary
    row, rates = good[0], ("images_per_s_total", "images_per_s_per_device")
    return {
        **summary,
        "training": {**{k: row[k]["value"] for k in rates}, "devices": row["devices"], "method": row["method"]},
    }


def _kept(
    ask: Ask, asked: dict[str, Any], arms: Sequence[Arm], rounds: Sequence[Round], facts: list[str], title: str
) -> tuple[dict[str, Any], str]:
    done = {r.arm for r in rounds}
    rows = [pooled(a.name, a.labels, rounds) for a in arms if a.name in done]
    if ask.scaling:
        add_scaling(rows, rounds, strong=ask.scaling == "strong")
    pairs = _pairs(arms) if ask.against else []
    compare = [
        {"arm": a.name, "against": b.name, **found}
        for a, b in pairs
        if (found := compared(rounds, a.name, b.name, ask.tolerance)) is not None
    ]
    facts = [*facts, *same_for_all(rows)]
    tree = {
        "method": METHOD, "config": asked["config"], "asked": asked, "rows": rows, "compared": compare, "facts": facts,
        "rounds": [asdict(r) for r in rounds],
    }  # fmt: skip
    return tree, markdown(title, rows, [*facts, *map(comparison_line, compare)])


def _pairs(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """Our arm with theirs of the same labels; where their labels differ, in order."""
    ours = [a for a in arms if a.labels.get("side") == HERE]
    theirs = [a for a in arms if a.labels.get("side") != HERE]

    def plain(arm: Arm) -> dict[str, Any]:
        return {k: v for k, v in arm.labels.items() if k != "side"}

    return [
        (a, next((b for b in theirs if plain(b) == plain(a)), theirs[min(i, len(theirs) - 1)]))
        for i, a in enumerate(ours)
    ]


def comparison_line(found: dict[str, Any]) -> str:
    """1.023 [1.001, 1.045] times the speed of ...: faster"""
    low, high = found["low"], found["high"]
    known = f" [{low:.4f}, {high:.4f}]" if low is not None else " [no interval]"
    return (
        f"{found['arm']}: {found['ratio']:.4f}{known} times the speed of {found['against']}: {found['verdict']} "
        f"(tolerance {100 * found['tolerance']:g} %, {found['basis']})"
    )


def regressed(found: dict[str, Any]) -> bool:
    """Whether any arm is surely slower than what it was compared with."""
    return any(c["verdict"] == "slower" for c in found["compared"])
