"""What is done with a trained model: load it, evaluate it, predict images, export it.

`trained` loads any of run, checkpoint, exported file and weights of others; `model_file` reads what a file says about
itself, `engines` finds what runs a model in place of PyTorch, `preparation` knows how published weights were evaluated,
`classes` matches class names, `evaluate` holds the evaluator that training uses too. May import `engine.build`,
`engine.execution`, `training.checkpoints` and everything below the engine. Benchmarks of inference are `lab.measured`.
"""
