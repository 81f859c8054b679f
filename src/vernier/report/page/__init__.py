"""The page: runs and logs, and whatever else plugs in, as one HTML file that needs no network.

`collect` finds the subjects of a page. Each kind of them is a class with what its card shows: `subjects` has what all
kinds share and the contract by which they plug in, `training` what `runs` (run directories) and external `logs` have in
common. Each module of `sections` renders one section, `build` joins them. `html` and
`figures` are the building blocks, with the contract of sections; `assets` has style and scripts. The laboratory adds
benchmarks, profiles and studies, outside packages anything else.
"""
