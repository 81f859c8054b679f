"""The page: runs, benchmarks, studies and logs as one HTML file that needs no network, or as a live view.

`collect` (with `studies`) reads files into subjects, each module of `sections` renders one section of them, `build`
joins the sections, `serve` is the live view. `html` and `figures` are the building blocks; `assets` has style and
scripts.
"""
