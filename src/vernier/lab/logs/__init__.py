"""Logs of runs, Vernier's own and other systems', in one common form, to be compared, converted and studied.

`model` is the form, `reading` opens any log, `own` reads Vernier's runs and benchmarks, `writing` converts, `exports`
does so when a run ends; `formats` finds the formats of other tools, which plug in. `contents` is what a log says about
what ran, and `work` compares that of two logs. `nvprof` and `tables` read what device studies are made of,
`as_study` writes a run as a study. Imports `records`, `measure`, `store` and `lab.reading`.
"""
