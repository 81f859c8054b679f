"""What the laboratory adds to the page of `vernier report`: `benchmarks`, `profiles` and `studies`, and the processes
and `hosts` of a run. Each module has a kind of subject and its section, which entry points name; the contracts are in
`report.page.subjects` and `report.page.figures`.
"""
