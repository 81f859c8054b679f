"""How things are measured, and what the figures mean: benchmarks, studies, profiles, telemetry, the machine, planning.

`statistics` computes, `telemetry` reads sensors, `machine` describes the host, `profile` splits steps, `bench` and
`study` run experiments in processes of their own, `planning` predicts. May import config, devices, records, store and
the top-level modules, never engine, report or cli. The types of results are in records; words and pages about them
are in report.
"""
