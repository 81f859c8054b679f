"""Profiles of some steps of a run: which operations take how long, where a step's time goes.

`steps` profiles with torch and writes the files of traces/; `summary` has the range of steps and the words about a
profile, and imports no torch, so that reports can use it. The records are in `records.profile`. May import clock,
errors, records, store and its neighbours in `measure`. The training loop and `lab.measured.profile_run` drive it;
`report.page` shows it.
"""
