"""`torch/utils`."""
