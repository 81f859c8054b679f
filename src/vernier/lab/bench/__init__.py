"""Benchmarks: which configurations there are, measuring them in fresh processes, and what their samples come to.

`configurations` and `versions` decide what runs, `rounds` runs it (`lab.launcher`), `measuring` is used
inside the processes, `rows` pools the results, `table` writes them for people, `session` does it all. May import
`config`, `records`, `store` and `measure`; the measured code is in `lab.measured`.
"""
