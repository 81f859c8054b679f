"""ONNX, a format of whole networks, written and read (`onnx`).

`network` has what is exported and how it is compared with PyTorch. It plugs in through the entry points
`vernier.export_formats`; the contract is `engine.inference.model_file.NetworkFormat`.
"""
