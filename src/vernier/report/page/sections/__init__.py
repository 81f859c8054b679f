"""The sections of the page, one module each, which plug in by the contract `figures.Section`.

A section imports the kinds of its subjects, `figures`, `html` and records, and reads no files. Those about benchmarks,
profiles and studies are in `vernier.lab.page`.
"""
