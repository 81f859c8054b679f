"""Records of what the laboratory measures: benchmarks, studies and sensors, as frozen dataclasses.

They are encoded and decoded by `vernier.records.codec`, as those of the core in `vernier.records` are. Imports
`records`, `store` and `config`.
"""
