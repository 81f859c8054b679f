"""Benchmarks: which arms there are, running them in fresh processes, and what their samples come to.

`combinations` and `versions` decide what runs, `arms` runs it, `measuring` and `serving` are used inside the processes,
`rows` pools the results, `table` writes them for people, `session` does it all. May import `config`, `records`,
`store` and `measure`; the measured code is in `lab.measured`, in the processes that `arms` starts.
"""
