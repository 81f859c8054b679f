"""Several hosts on one machine: namespaces joined by a switch that delays, loses, limits and cuts.

`machines` makes the hosts, `switch` is the process between them, `jobs` starts trainings on them, `__main__` tries
all that docs/many-machines.md says.
"""
