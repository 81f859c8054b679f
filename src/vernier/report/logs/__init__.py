"""Logs of runs, Vernier's own and other systems', in one common form.

`model` is the form, `reading` opens any log, `own` reads Vernier's runs and benchmarks, `writing` converts; `nvidia`,
`mllog`, `console`, `nvprof` and `smi` each know the formats of one source, `as_study` writes the files of a device
study. Imports `records`, `measure`, `store` and `report.live` (the tags of TensorBoard). Comparing runs is
`report.compare`, tables of a device study are `report.study`.
"""
