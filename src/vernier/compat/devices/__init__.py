"""Devices of other vendors than NVIDIA and AMD: Gaudi (`hpu`), Intel GPUs (`xpu`), Apple's (`mps`).

They plug in through the entry points `vernier.devices`; the contract is `devices.base`. Not run by us: docs/devices.md
has what was tested instead.
"""
