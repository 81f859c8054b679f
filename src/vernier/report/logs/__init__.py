"""Logs of runs, Vernier's own and other systems', in one common form.

`model` is the form, `reading` opens any log, `own` reads Vernier's runs and benchmarks, `writing` converts; `formats`
finds the formats of other tools, which plug in, and `work` is what a log says about what ran. Imports `records`,
`measure`, `store` and `report.live` (the tags of TensorBoard). Files of device studies are `lab.logs`.
"""
