"""The page: run directories as one file that opens anywhere, offline, or as a live view of runs that go on.

`collect` reads, `sections` say what is shown, `build` puts it together, `serve` is the live view.
"""
