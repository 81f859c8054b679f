"""Trackers that a run is sent to while it trains: TensorBoard, Weights & Biases, MLflow, and outside packages' own.

`sinks` has the trackers and the observer that feeds one, `tags` the names of metrics, and `tensorboard` its event
files, which it also writes from any log. Imports `records`, `measure`, `store` and `lab.logs`.
"""
