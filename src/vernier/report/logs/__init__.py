"""Logs of runs, Vernier's own and other systems', in one common form.

`model` is the form, `reading` opens any log, `own` reads Vernier's runs and benchmarks, `writing` converts; `formats`
finds the formats of other tools, which plug in. `nvprof` and `smi` read files of device studies, `as_study` writes
them. Imports `records`, `measure`, `store` and `report.live` (the tags of TensorBoard). Comparing runs is
`report.compare`, tables of a device study are `report.study`.
"""
