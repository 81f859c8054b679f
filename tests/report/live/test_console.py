"""What a person sees while a run trains, without a terminal and with one."""

import io
import re
import time
from dataclasses import replace

import pytest
from rich.console import Console

from vernier.measure.estimates import summarize
from vernier.records.events import EpochEvent, EvalEvent, StartEvent, StepEvent, WarningEvent
from vernier.records.run import Best, EvalResult, RunSummary, TrainingSpeed
from vernier.references import use
from vernier.report.live import console
from vernier.report.live.console import ConsoleObserver, closing_lines, format_figures

START = StartEvent(
    recipe="r",
    model="m",
    parameters=1234,
    classes=1,
    data="d[/]",
    train_samples=100,
    device="cpu",
    world=2,
    precision="fp32",
    mode="eager",
    workers=2,
    global_batch=8,
    process_batch=2,
    accumulation=2,
    steps_per_epoch=12,
    epochs=2.0,
    total_steps=24,
    stop_step=20,
    lr=0.1,
    seed=1,
    run="runs/[x]",
    resumed_from=3,
)


def step_event(step: int) -> StepEvent:
    return StepEvent(step=step, epoch=step / 12, loss=1.5, lr=0.1, samples=16, step_s=(1.0, 1.0), wait_s=(0.5, 0.0))


def plain_console() -> tuple[ConsoleObserver, io.StringIO]:
    out = io.StringIO()
    return ConsoleObserver(Console(file=out, width=200)), out


def test_plain_lines_show_what_was_derived_and_how_far_the_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "PLAIN_EVERY_S", 0.0)
    observer, out = plain_console()
    with observer:
        observer.emit(START)
        observer.emit(step_event(5))
    text = out.getvalue()
    assert "8 = 2 processes x 2 images x 2 accumulation steps" in text
    assert "12 steps per epoch x 2 epochs = 24 steps, stopping at 20" in text
    assert "resuming from step 3" in text
    assert "step 5/20" in text
    assert "8 img/s" in text
    assert "data wait 25 %" in text
    assert "eta 0:15" in text
    assert "runs/[x]" in text
    assert "\x1b" not in text


def test_evaluations_and_warnings_are_shown_at_once() -> None:
    observer, out = plain_console()
    with observer:
        observer.emit(START)
        observer.emit(EvalEvent(step=5, epoch=0.5, samples=50, figures={"top1": 12.5, "loss": 2.0}, best=True))
        observer.emit(EvalEvent(step=6, epoch=0.6, samples=10, figures={"AP": 0.25}, exact=False, flip_tta=True))
        observer.emit(WarningEvent(step=6, message="bad image x.jpg"))
    text = out.getvalue()
    assert "top-1 12.50 %  loss 2.0000  on 50 images in 0.0 s (best so far)" in text
    assert "AP 0.2500  on 10 images in 0.0 s [PART of the validation set] with flip test-time" in text
    assert "warning: bad image x.jpg" in text


def test_lines_come_every_few_seconds_not_every_step() -> None:
    observer, out = plain_console()
    with observer:
        observer.emit(START)
        for step in range(4, 20):
            observer.emit(step_event(step))
    assert "img/s" not in out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_print_interval_prints_a_line_per_event(terminal: bool) -> None:
    """`--print-freq 1` was mapped to a setting after which the console spoke every five seconds all the same."""
    out = io.StringIO()
    with ConsoleObserver(Console(file=out, width=200, force_terminal=terminal)) as observer:
        observer.emit(replace(START, log_every_steps=2))
        for step in (5, 7, 9):
            observer.emit(replace(step_event(step), top1=12.5, top5=50.0))
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", out.getvalue())
    figures = r"loss 1\.5000  top-1 12\.50 %  top-5 50\.00 %  8 img/s  epoch 0\.\d+/2  step (\d)/20"
    assert re.findall(rf"(?:\r|^)eta 0:\d\d  {figures}", plain, re.MULTILINE) == ["5", "7", "9"]


def test_an_epoch_has_a_line_with_its_speed_and_accuracy() -> None:
    observer, out = plain_console()
    with observer:
        observer.emit(
            EpochEvent(
                step=12, epoch=1, samples=96, seconds=4.0, images_per_s_total=24.0, loss=1.5, top1=25.0, top5=60.0
            )
        )
        observer.emit(EpochEvent(step=24, epoch=2))  # of an older run
    assert out.getvalue() == (
        "epoch 1  trained 96 images in 4.0 s, 24 img/s  top-1 25.00 %  top-5 60.00 %  loss 1.5000\n"
    )


def test_a_long_step_never_looks_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "QUIET_LIMIT_S", 0.0)
    observer, out = plain_console()
    with observer:
        observer.emit(START)
        deadline = time.monotonic() + 60
        while "still running" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert "step 4 still running" in out.getvalue()


def test_the_lines_about_a_long_step_count_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "QUIET_LIMIT_S", 0.0)
    observer, out = plain_console()
    with observer:
        observer.emit(START)
        deadline = time.monotonic() + 60
        while out.getvalue().count("still running") < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
    seconds = [int(line.split()[-2]) for line in out.getvalue().splitlines() if "still running" in line]
    assert len(set(seconds)) >= 2
    assert seconds == sorted(seconds)


def _shown(observer: ConsoleObserver, width: int) -> list[str]:
    """The lines of the live display as a terminal of this width shows them."""
    assert observer._bar is not None
    screen = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with screen.capture() as captured:
        screen.print(observer._bar.get_renderable())
    return captured.get().splitlines()


@pytest.mark.parametrize(
    ("width", "figures"),
    [
        (60, ["eta 1:06:00", "loss 1.5000"]),
        (80, ["eta 1:06:00", "loss 1.5000", "8 img/s"]),
        (
            200,
            ["eta 1:06:00", "loss 1.5000", "8 img/s", "epoch 166.67/2", "step 2,000/5,960", "lr 0.1", "data wait 25 %"],
        ),
    ],
)
def test_bar_percentage_and_eta_survive_a_narrow_terminal(width: int, figures: list[str]) -> None:
    terminal = Console(file=io.StringIO(), width=width, force_terminal=True)
    with ConsoleObserver(terminal) as observer:
        assert "starting up" in _shown(observer, width)[0]
        observer.emit(replace(START, stop_step=5960))
        assert "first step" in _shown(observer, width)[0]
        observer.emit(step_event(2000))
        (line,) = _shown(observer, width)
        observer.progress("evaluate", 3, 10)
        training, evaluating = _shown(observer, width)
    assert " train " in line
    assert "━" in line
    assert "34 %" in line
    assert all(figure in line for figure in figures)
    assert "eta 1:06:00" in training
    assert "evaluate" in evaluating
    assert "━" in evaluating
    assert "30 %  3/10".replace("  ", " ") in evaluating.replace("  ", " ")
    assert all(len(shown) <= width for shown in (line, training, evaluating))


def test_on_a_terminal_there_is_a_bar_and_it_is_removed_at_the_end() -> None:
    out = io.StringIO()
    with ConsoleObserver(Console(file=out, width=200, force_terminal=True)) as observer:
        observer.emit(START)
        observer.emit(step_event(5))
        observer.progress("evaluate", 1, 2)
        observer.progress("evaluate", 2, 2)
    assert "step 5/20" in out.getvalue()
    assert "evaluate" in out.getvalue()


def test_partial_results_are_marked() -> None:
    result = EvalResult(figures={"top1": 1.0, "top5": 2.0, "loss": 3.0}, averaged=True, exact=False, samples=7)
    summary = RunSummary(step=9, result=result, spent_s={"total": 3661.0})
    lines = "\n".join(closing_lines(summary, "runs/x", "finished"))
    assert "PART of the validation set" in lines
    assert "averaged weights at step 9" in lines
    assert "1:01:01" in lines


def test_the_closing_lines_name_the_best_evaluation_only_if_it_is_another() -> None:
    result = EvalResult(figures={"top1": 50.0}, samples=7)
    for best, shown in ((4, True), (9, False)):
        summary = RunSummary(
            step=9, result=result, best=Best(step=best, figures={"top1": 60.0}), spent_s={"total": 1.0}
        )
        assert ("best       top-1 60.00 % at step 4" in closing_lines(summary, "runs/x", "finished")) is shown


@pytest.mark.parametrize(("figure", "setting"), [("top1", "eval.target_top1"), ("AP", "eval.target_ap")])
def test_the_closing_lines_say_that_the_target_ended_the_training(figure: str, setting: str) -> None:
    result = EvalResult(figures={figure: 0.5}, samples=7)
    for reached in (True, False):
        summary = RunSummary(step=88, result=result, reached_target=reached, spent_s={"total": 1.0})
        lines = [line for line in closing_lines(summary, "runs/x", "finished") if line.startswith("target")]
        assert [use(setting, None) in line and "at step 88" in line for line in lines] == [True] * reached


def test_the_total_rate_names_its_devices() -> None:
    """A table elsewhere gave the rate of one card as that of eight."""
    speed = TrainingSpeed(
        images_per_s_total=128.0,
        images_per_s_per_device=16.0,
        devices=8,
        method="m",
        data_wait_share=0.1,
        steps_measured=19,
        warmup_steps_excluded=1,
    )
    lines = closing_lines(RunSummary(training=speed, spent_s={"total": 10.0}), "run", "finished")
    (line,) = [line for line in lines if line.startswith("speed")]
    assert "128 img/s total on 8 devices" in line
    assert "19 steps, without the first" in line
    summary = summarize([1.0 + i % 3 for i in range(19)], unit="s", of="training step, all devices")
    lines = closing_lines(RunSummary(training=replace(speed, step_s=summary), spent_s={"total": 10.0}), "r", "finished")
    assert "no 95 % interval (19 samples are too few" in "".join(lines)


def test_figures_become_words() -> None:
    assert format_figures({"AP": None}) == "no figures: the data has nothing to measure"


@pytest.mark.parametrize("terminal", [False, True])
def test_names_of_strangers_do_not_steer_the_terminal(terminal: bool) -> None:
    out = io.StringIO()
    with ConsoleObserver(Console(file=out, force_terminal=terminal, width=200, highlight=False)) as observer:
        observer.emit(WarningEvent(step=1, message="class '\x1b]0;owned\x07\x1b[2J\r\u202e' has no images\n\x9b31m"))
    assert r"class '\x1b]0;owned\x07\x1b[2J\r\u202e' has no images\n\x9b31m" in out.getvalue()
    assert not set("\x07\u202e\x9b") & set(out.getvalue())
