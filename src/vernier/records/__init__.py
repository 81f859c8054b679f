"""Types of what was measured and what happened: events, run summaries, benchmarks, studies, telemetry, profiles.

Each type has one encoder and one decoder, both in `records.codec`; JSON keys are field names. Everything that writes or
reads a result uses these types, so a misspelt key is found by mypy and not by a user. May import nothing of Vernier but
`errors`. Files on disk are `store`'s business; computing the figures is `measure`'s.
"""
