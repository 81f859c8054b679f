"""A stand-in for torchvision's compiled operators, which load next to the PyTorch that they were built for only.

Import it before torchvision. The operators are declared and cannot be called: classifiers do not use them.
"""

import torch

if not hasattr(torch.ops.torchvision, "nms"):
    _LIBRARY = torch.library.Library("torchvision", "DEF")  # kept: its operators go with it
    for _name in ("nms", "qnms"):
        _LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
