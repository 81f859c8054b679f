"""Predictions before a run: its speed on many devices.

`workload` reads a measured speed from a run or a number, `plan` predicts many devices, `table` has the rows that people
read, with the errors of such estimates. May import config, models, records and store. The command is in
`lab.cli.planning`; speeds are measured by `lab.bench` and by training runs.
"""
