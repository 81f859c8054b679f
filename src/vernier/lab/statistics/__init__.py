"""Statistics of step times: estimates with intervals, comparisons, summaries, throughput, agreement with publications.

Nothing here runs or times anything. `throughput.Window` is the one definition of throughput. May import config,
records and measure.telemetry. The types of results are in records.statistics and records.run; measure.bench,
measure.study and report use them.
"""
