import pytest

from vernier.measure.bench.arms import Arm, Round, _hopeless, run_arms
from vernier.measure.bench.table import add_scaling, compared, markdown, notes, pooled, tables


def result(step_s: list[float], *, images: int = 10, wait: float = 0.0, devices: int = 1) -> dict[str, object]:
    from vernier.measure.bench.measuring import Measured, WarmUp, figures, raw

    found = Measured(WarmUp([9.0, *step_s[:2]], steady=True), step_s, [wait * s for s in step_s], 0.0, sum(step_s))
    quiet = {
        "samples": 3,
        "others_cores": 0.0,
        "steal_pct": None,
        "throttled": None,
        "clock_drift_pct": None,
        "temperature_c_max": None,
    }
    return {
        "status": "ok", "figures": figures(found, images=images, devices=devices), "raw": raw(found), "images_per_step": images,
        "noise": quiet, "method": "m", "peak_memory_bytes": 2**20, "energy": None, "execution": "eager",
    }  # fmt: skip


def rounds(name: str, *sets: list[float], **more: object) -> list[Round]:
    return [Round(name, i, i, result(s, **more)) for i, s in enumerate(sets)]  # type: ignore[arg-type]


def test_several_processes_are_the_unit_of_the_interval() -> None:
    """Within each process nothing varies; between them 10 % does, and the interval knows."""
    row = pooled("a", {"batch": 10}, rounds("a", [1.0] * 40, [1.1] * 40, [0.9] * 40))
    rate = row["images_per_s_total"]
    assert rate["value"] == pytest.approx(10.0)
    assert rate["high"] / rate["low"] > 1.2
    assert rate["basis"] == "3 processes"
    alone = pooled("a", {"batch": 10}, rounds("a", [1.0, 1.2] * 20))
    assert "one process" in alone["images_per_s_total"]["basis"]


def test_the_compute_only_rate_is_never_below_the_whole() -> None:
    row = pooled("a", {"batch": 10}, rounds("a", [1.0] * 40, [4.0] * 40, wait=0.2))
    assert row["compute_only_images_per_s_total"] == pytest.approx(row["images_per_s_total"]["value"] / 0.8)
    assert row["verdict"] == "loader-bound"
    assert row["step_s"]["n"] == 80


def test_per_device_and_total_are_both_named_and_agree() -> None:
    """The multi-device rate is images over time once: not summed over ranks, not averaged (F1, F3, F19)."""
    row = pooled("a", {"batch": 5, "procs": 4}, rounds("a", [1.0] * 40, images=20, devices=4))
    assert row["images_per_s_total"]["value"] == pytest.approx(20)
    assert row["images_per_s_per_device"]["value"] == pytest.approx(5)
    (shown,) = tables([row])[0]
    assert {"img/s total", "per device"} <= set(shown)


def test_weak_scaling_is_against_the_fewest_processes() -> None:
    made = [r for n, t in ((1, 1.0), (4, 1.25)) for r in rounds(f"p{n}", [t] * 40, images=10 * n, devices=n)]
    rows = [pooled(f"p{n}", {"batch": 10, "procs": n}, made) for n in (1, 4)]
    add_scaling(rows, made, strong=False)
    assert [r["efficiency"] for r in rows] == pytest.approx([1.0, 0.8])
    assert rows[1]["speedup"] == pytest.approx(3.2)
    assert rows[1]["efficiency_95"][0] <= 0.8 <= rows[1]["efficiency_95"][1]
    assert "80.0 % [80, 80]" in markdown("t", rows, [])


def test_scaling_is_by_threads_too_and_beside_what_the_machine_gives_without_exchange() -> None:
    layouts = {
        "2": ({"procs": 2, "threads": 1}, 1.25, 20), "2a": ({"procs": 2, "threads": 1, "exchange": "none"}, 1.0, 20),
        "1": ({"procs": 1, "threads": 1}, 0.8, 10), "1t": ({"procs": 1, "threads": 2}, 0.5, 10),
    }  # fmt: skip
    made = [r for name, (_, t, images) in layouts.items() for r in rounds(name, [t] * 40, [t] * 40, images=images)]
    rows = [pooled(name, {"batch": 10, **labels}, made) for name, (labels, _, _) in layouts.items()]
    add_scaling(rows, made, strong=False)
    two, apart, one, threads = rows
    assert [r["speedup"] for r in rows] == pytest.approx([16 / 12.5, 20 / 12.5, 1.0, 20 / 12.5])
    assert [r["efficiency"] for r in rows] == pytest.approx([0.64, 0.8, 1.0, 0.8])
    assert two["of_apart"] == pytest.approx(0.8)
    assert not any("of_apart" in r for r in (apart, one, threads))
    shown = tables(rows)[0]
    assert (shown[0]["of that without exchange"], shown[2]["of that without exchange"]) == ("80.0 % [80, 80]", "")


def test_what_did_not_fit_is_a_row() -> None:
    made = [*rounds("batch=1", [1.0] * 40), Round("batch=2", 0, 1, {"status": "out-of-memory", "why": "too big"})]
    rows = [pooled(f"batch={b}", {"batch": b}, made) for b in (1, 2)]
    assert rows[1]["status"] == "out-of-memory"
    assert "out-of-memory" in markdown("t", rows, [])
    assert any("too big" in line for line in notes(rows))


def test_larger_batches_are_not_tried_after_a_smaller_one_did_not_fit() -> None:
    arms = [Arm(name=f"b{b}", labels={"batch": b, "mode": m}, spec={}) for b in (1, 2, 4) for m in ("eager",)]
    failed = {"b2": {"status": "out-of-memory"}}
    assert _hopeless(arms[0], arms, failed) is None
    found = _hopeless(arms[2], arms, failed)
    assert found is not None
    assert "batch 2" in found["why"]
    other = Arm(name="x", labels={"batch": 8, "mode": "compile"}, spec={})
    assert _hopeless(other, [*arms, other], failed) is None


def test_sides_are_compared_round_by_round() -> None:
    """The machine slows down by half over the rounds; the ratio within rounds does not care."""
    ours = [Round("ours", i, 2 * i, result([0.5 * (1 + i / 4)] * 40)) for i in range(4)]
    theirs = [Round("theirs", i, 2 * i + 1, result([1.0 * (1 + i / 4)] * 40)) for i in range(4)]
    found = compared([*ours, *theirs], "ours", "theirs", 0.01)
    assert found is not None
    assert found["ratio"] == pytest.approx(2.0)
    assert found["verdict"] == "faster"
    assert "4 rounds" in found["basis"]


def test_every_arm_runs_once_a_round_in_an_order_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    from vernier.measure.bench import arms as bench_arms

    monkeypatch.setattr(bench_arms, "run_in_process", lambda arm: {"status": "ok", "arm": arm.name})
    arms = [Arm(name=str(i), labels={}, spec={}) for i in range(6)]
    told: list[int] = []
    done = run_arms(arms, repeats=4, seed=3, tell=lambda rounds, total: told.append(len(rounds)))
    orders = [[r.arm for r in done if r.round == k] for k in range(4)]
    assert all(sorted(o) == sorted(a.name for a in arms) for o in orders)
    assert len({tuple(o) for o in orders}) > 1
    assert told == list(range(1, 25))
    again = run_arms(arms, repeats=4, seed=3, tell=lambda rounds, total: None)
    assert [r.arm for r in again] == [r.arm for r in done]


def test_an_efficiency_without_interval_says_so() -> None:
    made = [r for n in (1, 2) for r in rounds(f"p{n}", [1.0], devices=n)]
    rows = [pooled(f"p{n}", {"batch": 10, "procs": n}, made) for n in (1, 2)]
    add_scaling(rows, made, strong=True)
    assert rows[1]["efficiency_95"] is None
    assert "[no interval]" in markdown("t", rows, [])


def _on(cores: int, threads: int, more: dict[str, object]) -> dict[str, object]:
    return {**more, "environment": {"device_kind": "cpu", "cpu": {"cores_logical": cores}, "compute_threads": threads}}


def test_processes_that_share_cores_say_so() -> None:
    made = [
        Round(f"procs={p}", 0, 0, _on(2, t, result([1.0] * 40, devices=p))) for p, t in ((1, 2), (2, 1), (4, 1))
    ]  # fmt: skip
    rows = [pooled(r.arm, {"batch": 10, "procs": int(r.arm[-1])}, made) for r in made]
    add_scaling(rows, made, strong=False)
    said = notes(rows)
    assert "procs=4: 4 processes share 2 cores: as many devices would not" in said
    assert any(line.startswith("procs=2: 1 core(s) a process, where procs 1 has 2") for line in said)
    assert not any(line.startswith("procs=1: 1") for line in said)


def test_what_is_said_of_every_row_is_said_once() -> None:
    refused = {"status": "refused", "why": "no hardware"}
    made = [Round(n, 0, 0, refused) for n in ("batch=1", "batch=2")] + rounds("batch=4", [1.0] * 40, [1.0] * 40)
    rows = [pooled(n, {"batch": int(n[-1])}, made) for n in ("batch=1", "batch=2", "batch=4")]
    said = notes(rows)
    assert said[0] == "batch=1, batch=2: refused: no hardware"
    assert notes(rows[:2])[0] == "all rows: refused: no hardware"
    assert "energy: unknown, no counter here tells it" in said
    (table,) = tables(rows)
    assert "per device" not in table[0]  # one device each: the total says it
    assert "J/img" not in table[0]


def test_an_interval_that_says_nothing_is_not_printed_as_one() -> None:
    made = rounds("batch=1", [0.1] * 40, [1.0] * 40)
    row = pooled("batch=1", {"batch": 1}, made)
    assert row["images_per_s_total"]["high"] > 1000 * row["images_per_s_total"]["value"]
    assert tables([row])[0][0]["img/s total"] == "18.2 [could be 10 times that]"
    assert any("give more --repeats" in line for line in notes([row]))


def test_arithmetic_and_phases_are_those_of_all_processes() -> None:
    made = rounds("a", [1.0] * 40, [3.0] * 40)
    for one, forward, matmul in zip(made, (0.2, 0.4), (10.0, 30.0), strict=True):
        figures = one.result["figures"]
        figures["phases"] = {"steps": 10, "seconds": {"data": 0.1, "forward": forward}}
        one.result["flops"] = {"gflop_per_image": 0.5, "matmul": {"gflop_per_s": matmul}}
    row = pooled("a", {"batch": 10}, made)
    assert row["images_per_s_total"]["value"] == pytest.approx(5.0)
    assert row["flops"]["gflop_per_s_per_device"] == pytest.approx(2.5)
    assert row["flops"]["share_of_matmul"] == pytest.approx(2.5 / 20)
    assert row["phases"]["seconds"] == {"data": pytest.approx(0.1), "forward": pytest.approx(0.3)}
    assert row["phases"]["steps"] == 20
