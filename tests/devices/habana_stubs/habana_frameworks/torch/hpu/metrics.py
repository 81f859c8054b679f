"""`torch/hpu/metrics.py`: counters of the bridge, as in Intel's documentation "Runtime environment: metrics APIs"."""


class _Metric:
    def stats(self) -> list[tuple[str, int]]:
        """Times are in microseconds."""
        return [("TotalNumber", 3), ("TotalTime", 1_500_000), ("AvgTime", 500_000)]


def metric_global(metric_name: str) -> _Metric:
    """The metric since the process began: graph_compilation, cpu_fallback, memory_defragmentation, ..."""
    assert metric_name in ("graph_compilation", "cpu_fallback", "memory_defragmentation", "recipe_cache")
    return _Metric()
