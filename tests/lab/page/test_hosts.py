"""The section about several processes and hosts."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.run_dirs import encode_telemetry, write_run
from vernier.lab.page.hosts import RankTime, describe, rank_times
from vernier.lab.records.telemetry import Sample
from vernier.records.events import Event, ProcessInfo, StartEvent, StepEvent
from vernier.report.page.build import Page
from vernier.report.page.collect import collect
from vernier.store import RunDir

PageOf = Callable[..., Page]
HOSTS = ("node1", "node1", "node2", "node2")
OWN_S = (0.10, 0.11, 0.15, 0.16)
PROCESSES = tuple(ProcessInfo(rank=rank, host=host, device="cpu") for rank, host in enumerate(HOSTS))
CLOCKS_S = {0: 1000.0, 2: 50_000.0}
"""Hosts count time from when they were started."""


def _step(rank: int, number: int) -> StepEvent:
    return StepEvent(
        step=10 * number,
        epoch=number / 10,
        loss=1.0,
        lr=0.1,
        samples=320,
        step_s=(0.2,) * 10,
        wait_s=(0.01 * rank,) * 10,
        own_s_by_rank=OWN_S if rank == 0 else (),
        t_s=CLOCKS_S.get(rank, 0.0) + 2 * number,
    )


def _write(run: RunDir, rank: int, *before: Event) -> None:
    """The files of a process; the first one of a host has sensors."""
    log = run.events(rank)
    for event in (*before, StartEvent(processes=PROCESSES), *(_step(rank, number) for number in range(1, 6))):
        log.emit(event)
    log.close()
    if rank in CLOCKS_S:
        samples = run.telemetry(rank)
        for t in range(1, 10):
            sample = Sample(device_kind="cpu", device=0, t_s=CLOCKS_S[rank] + t, util_pct=10.0 * rank + t)
            samples.emit(encode_telemetry(sample))
        samples.close()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """Four processes on two hosts; the files of the second host are not here yet."""
    made = RunDir(write_run(tmp_path, "several", []))
    (made.path / "events.jsonl").unlink()
    for rank in (0, 1):
        _write(made, rank)
    return made


def test_a_straggler_is_named_by_its_host(run: RunDir, page_of: PageOf) -> None:
    (subject,) = collect([run.path])
    times = rank_times(subject)
    assert [t.own_s for t in times] == pytest.approx(OWN_S)
    assert [t.slowest_s for t in times] == pytest.approx([0.06, 0.05, 0.01, 0.0])
    assert [t.exchange_s for t in times] == pytest.approx([0.04] * 4)
    assert describe(times) == (
        "Straggler: host node2 (all of its 2 processes), up to 160 ms per step, 45 % more than the median of 110 ms. "
        "Of a step of 200 ms, a process waits 15 % for the slowest one on average; exchange and update take 20 %."
    )
    assert "Straggler: host node2" in str(page_of(run.path).html())


def test_files_of_a_host_that_arrive_later_complete_the_page(run: RunDir, page_of: PageOf) -> None:
    before = page_of(run.path)
    assert "Not here: the events of 2 processes on node2. Copy events.rank2.jsonl" in before.html()
    assert ["rank 2 on node2", "computing and waiting for data", 0.15] in _rounded(before, "rank-parts-0")
    assert {r[1] for r in before.figures["telemetry-util_pct"].rows} == {"cpu 0"}
    for rank in (2, 3):
        _write(run, rank)
    after = page_of(run.path)
    assert "Not here" not in after.html()
    rows = _rounded(after, "rank-parts-0")
    assert ["rank 2 on node2", "waiting for data", 0.02] in rows
    assert ["rank 2 on node2", "computing", 0.13] in rows
    sensors = after.figures["telemetry-util_pct"].rows
    assert {r[1] for r in sensors} == {"node1: cpu 0", "node2: cpu 0"}
    times = {host: [r[4] for r in sensors if r[1] == f"{host}: cpu 0"] for host in ("node1", "node2")}
    assert times["node1"] == pytest.approx(times["node2"]), "clocks of hosts differ, steps do not"


def _rounded(page: Page, figure: str) -> list[list[object]]:
    return [[*row[:-1], round(float(row[-1]), 6)] for row in page.figures[figure].rows]


def test_the_timeline_has_a_line_per_process_and_of_many_one_per_host(run: RunDir, page_of: PageOf) -> None:
    assert {r[0] for r in page_of(run.path).figures["ranks-0"].rows} == {
        f"rank {rank} on {host}" for rank, host in enumerate(HOSTS)
    }
    many = tuple(ProcessInfo(rank=rank, host=f"node{rank // 10}", device="cpu") for rank in range(20))
    log = run.events()
    log.emit(StartEvent(processes=many, resumed_from=50))
    log.emit(replace(_step(0, 6), own_s_by_rank=tuple(0.1 + rank / 1000 for rank in range(20))))
    log.close()
    rows = page_of(run.path).figures["ranks-0"].rows
    assert [(r[0], round(float(r[-1]))) for r in rows] == [("node0", 109), ("node1", 119)], "the last session alone"


def test_one_slow_process_of_a_host_and_none(run: RunDir) -> None:
    (subject,) = collect([run.path])
    one, *others = rank_times(subject)
    assert describe([replace(t, own_s=0.1) for t in (one, *others)]).startswith(
        "No straggler: the slowest process, rank"
    )
    slow: list[RankTime] = [replace(t, own_s=0.1 + 0.1 * (t.process.rank == 3)) for t in (one, *others)]
    assert describe(slow).startswith("Straggler: rank 3 on node2, 200 ms per step")


def test_impossible_ranks_have_no_such_section(run: RunDir, page_of: PageOf) -> None:
    log = run.events()
    log.emit(StartEvent(processes=(PROCESSES[0], replace(PROCESSES[1], rank=7)), resumed_from=50))
    log.emit(replace(_step(0, 6), own_s_by_rank=(0.1, 0.1)))
    log.close()
    assert "hosts" not in [s.name for s in page_of(run.path).sections]


def test_a_single_process_has_no_such_section(tmp_path: Path, page_of: PageOf) -> None:
    assert "hosts" not in [s.name for s in page_of(write_run(tmp_path, "one", [0.1] * 20)).sections]
