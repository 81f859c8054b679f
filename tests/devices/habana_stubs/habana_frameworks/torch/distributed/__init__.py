"""`torch/distributed`."""
