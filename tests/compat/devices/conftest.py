"""The same vendors' libraries as for the devices of the core."""

from tests.devices.conftest import _torch_settings_put_back, hpu, mps, xpu

__all__ = ["_torch_settings_put_back", "hpu", "mps", "xpu"]
