"""A run as the terminal shows it while it trains. Trackers plug in from `compat.trackers`.

Each module is an observer of `engine.observe`'s events (`records.events`), or a part of one. May import `records`,
`store`, `clock` and `measure`, never `engine`. The page is `report.page`.
"""
