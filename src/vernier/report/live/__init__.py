"""A run as it is shown while it trains: the terminal, and trackers (TensorBoard, W&B, MLflow).

Each module is an observer of `engine.observe`'s events (`records.events`), or a part of one. May import `records`,
`store`, `clock` and `measure`, never `engine`. Logs of other tools are `report.logs`, the page is `report.page`.
"""
