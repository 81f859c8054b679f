"""Engines for inference (`machine.engine`): onnxruntime and OpenVINO, checked against PyTorch, measured and chosen.

`runners` has the engines, and refuses what they cannot do; `onnx_files` exports a model once and makes an
INT8 file of it; `choosing` checks engines against PyTorch on the user's images and takes one. They plug in through the
entry points `vernier.engines`; the contract is `engine.inference.engines`.
"""
