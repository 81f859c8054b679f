from vernier.lab.phases import PhaseClock


def test_a_phase_that_occurs_twice_in_a_step_is_added_up() -> None:
    clock = PhaseClock(lambda: None)
    for seconds in ((1.0, 2.0), (4.0,)):
        for s in seconds:
            clock.add("forward", s)
        clock.next_step()
    assert clock.by_phase() == {"forward": [3.0, 4.0]}


def test_a_phase_that_a_step_does_not_have_took_no_time() -> None:
    clock = PhaseClock(lambda: None)
    clock.add("forward", 1.0)
    clock.next_step()
    clock.add("optimizer", 2.0)
    assert clock.by_phase() == {"forward": [1.0, 0.0], "optimizer": [0.0, 2.0]}


def test_the_device_is_synchronised_at_both_ends_of_a_phase() -> None:
    order: list[str] = []

    class Mark:
        def __enter__(self) -> None:
            order.append("mark begins")

        def __exit__(self, *_: object) -> None:
            order.append("mark ends")

    clock = PhaseClock(lambda: order.append("synchronised"), lambda name: Mark())
    with clock("forward"):
        order.append("work")
    assert order == ["synchronised", "mark begins", "work", "mark ends", "synchronised"]
    assert clock.by_phase()["forward"][0] >= 0
