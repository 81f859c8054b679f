"""Logs of training runs, Vernier's own and other systems', in one common form.

`model` is the form, `reading` opens any log, `writing` converts; `dllogger`, `mllog` and `nvprof` each know one foreign
format. Imports `records`, `measure`, `store` and `report.live` (the tags of TensorBoard). Comparing runs is
`report.compare`, tables of a device study are `report.study`.
"""
