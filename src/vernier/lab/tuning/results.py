"""What a search measured, for people: the table, the headline, and the text of the machine file."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from vernier.clock import utc_stamp
from vernier.config import Tuned, toml_value
from vernier.lab.records.bench import Confirmation, SettingValue, TunedSetting, TunedValue, TuneResult
from vernier.measure.environment import installed_version
from vernier.quantities import duration
from vernier.records.what_ran import line_of
from vernier.references import command
from vernier.templates import lines_of, open_templates
from vernier.version import describe_version
from vernier.wording import plural

from .candidates import order_of
from .comparing import WORTH
from .search import Search

_TEMPLATES = open_templates(__file__, command=command, duration=duration, toml_value=toml_value)
_ALWAYS = {"infer": ("eval_batch",), "train": ()}
"""Settings that are written even where they stayed: the search began with another value than the commands do."""


def make_result(search: Search, *, seconds: float, stopped: bool) -> TuneResult:
    """Everything that is known; the settings to write are the confirmed ones."""
    config, work = search.config, search.situation.work
    confirmed = search.confirmation is not None and search.confirmation.confirmed
    given = [name for name in (*order_of(search.situation), "device") if name in search.situation.fixed]
    machine: dict[str, SettingValue] = {name: getattr(config.machine, name) for name in (*_ALWAYS[work], *given)}
    return TuneResult(
        work=work,
        what_ran=line_of([search.ready.ran]) if search.ready and search.ready.ran else "",
        settings=tuple(search.settings),
        confirmation=search.confirmation,
        machine={} if stopped else machine | (search.chosen if confirmed else {}),
        seconds=seconds,
        stopped=stopped,
        notes=tuple(search.notes),
    )


def table(settings: Sequence[TunedSetting]) -> list[dict[str, str]]:
    """One row per value that was tried or left out, as people read it."""
    rows = []
    for setting in settings:
        if setting.left_out is not None:
            rows.append(_row(setting.name, setting.before, verdict=f"not tried: {setting.left_out}"))
            continue
        base = statistics.harmonic_mean(setting.rates) if setting.rates else None
        verdict = "in use before, stays" if setting.chosen == setting.before else "in use before"
        rows.append(
            _row(setting.name, setting.before, rate=base, times="1", rounds=len(setting.rates), verdict=verdict)
        )
        rows += [_value_row(value) for value in setting.values]
    return rows


def _value_row(value: TunedValue) -> dict[str, str]:
    verdict = f"not measured: {value.why}" if value.verdict == "not measured" and value.why else value.verdict
    return _row("", value.shown, rate=value.images_per_s, times=_times(value), rounds=len(value.rates), verdict=verdict)


def _row(
    name: str, shown: str, *, rate: float | None = None, times: str = "", rounds: int = 0, verdict: str = ""
) -> dict[str, str]:
    return {
        "setting": name,
        "value": shown,
        "img/s": "" if rate is None else f"{rate:,.1f}" if rate < 1000 else f"{rate:,.0f}",
        "times as fast": times,
        "rounds": str(rounds) if rounds else "",
        "result": verdict,
    }


def _times(value: TunedValue | Confirmation) -> str:
    if value.ratio is None or value.low is None or value.high is None:
        return ""
    return f"{value.ratio:.3f} [{value.low:.3f}, {value.high:.3f}]"


def headline(result: TuneResult) -> str:
    """The one sentence to take home: the fresh measurement, not the comparisons that chose."""
    confirmation = result.confirmation
    if result.stopped:
        return "interrupted: nothing was chosen and nothing was written"
    if confirmation is None and any(setting.chosen != setting.before for setting in result.settings):
        return "NOT confirmed: the new measurement failed, so that the defaults stay"
    if confirmation is None:
        return f"the defaults stay: no setting was certainly faster, by {WORTH - 1:.0%} or more"
    rounds = plural(len(confirmation.chosen_rates), "round")
    figures = f"{_times(confirmation)} times as fast as the defaults ({rounds} of new processes, 95 % interval)"
    if confirmation.confirmed:
        return f"confirmed: {figures}"
    return f"NOT confirmed: {figures}: the defaults stay"


def closing_lines(result: TuneResult) -> list[str]:
    """Below the table: headline, notes, the file and how to use it."""
    return lines_of(_TEMPLATES, "closing.txt", {**vars(result), "headline": headline(result)})


def file_text(result: TuneResult, search: Search) -> str:
    """The machine file: the settings, what each bought, and where that was measured."""
    situation, ready = search.situation, search.ready
    comments = {
        name: f"{_times(value)} times as fast as {setting.before}"
        for setting in result.settings
        for value in setting.values
        if value.verdict == "chosen"
        for name in value.machine
    }
    comments |= {name: "given" for name in result.machine if name in situation.fixed}
    tuned = Tuned(
        work=result.work,
        network=search.config.recipe.model.name,
        device=ready.ran.device if ready is not None and ready.ran is not None else situation.device,
        cores=situation.cores,
        date=utc_stamp()[:10],
        torch=installed_version("torch") or "",
        vernier=describe_version(),
    )
    written = f"Written by vernier tune on {tuned.date}, as the machine file of other commands."
    return machine_toml(result.machine, tuned, comments, [written, result.what_ran, headline(result)])


def machine_toml(settings: Mapping[str, Any], tuned: Tuned, comments: Mapping[str, str], head: list[str]) -> str:
    """The text of a machine file; `comments` are by setting, `head` are lines at the top."""
    values = {"settings": settings, "tuned": vars(tuned), "comments": comments, "head": head}
    return "\n".join(lines_of(_TEMPLATES, "machine.toml", values)) + "\n"
