"""What is done with a trained model: load it, evaluate it, predict images, export it.

`trained` loads, `evaluate` holds the evaluator that training uses too. May import `engine.build`, `engine.execution`,
`training.checkpoint` and everything below the engine. Benchmarks of inference are `engine.measured`.
"""
