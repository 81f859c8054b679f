"""Results of threads, in order."""

import threading

from vernier.compat.preparing.threads import map_in_order


def test_results_come_in_order_and_few_are_made_ahead() -> None:
    started: list[int] = []
    lock = threading.Lock()

    def double(number: int) -> int:
        with lock:
            started.append(number)
        return 2 * number

    results = map_in_order(double, range(1000), workers=2)
    assert [next(results) for _ in range(10)] == list(range(0, 20, 2))
    assert len(started) < 100
    assert list(results) == list(range(20, 2000, 2))
