"""Engines: what runs a network for inference, PyTorch itself, onnxruntime or OpenVINO, chosen by `machine.engine`.

`requirements` says what is installed and refuses what no engine can do, `folding` makes PyTorch's own network faster,
`onnx_cache` exports a network once, `sessions` opens the file with an engine, `quantizing` makes an INT8 file of it,
and `choosing` checks engines against PyTorch on the user's images, measures them and takes one. May import `inference`
and everything below the engine. Evaluation and prediction are `inference`'s, benchmarks `measured`'s.
"""
