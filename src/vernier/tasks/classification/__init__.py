"""Image classification: `task` has the loss and the prediction, `score` the metric and the mistakes.

May import `config`, `data`, `records` and `tasks.base`. Detection is its neighbour and shares nothing but the contract.
"""
