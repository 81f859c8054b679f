"""The Python interface: what `import vernier` offers, in the words of Python, and what the commands share with it.

`training`, `finetuning`, `runs`, `models`, `benchmarks` and `comparisons` have the public functions and the objects
they return; `display` shows those in notebooks. `options` has the keyword arguments, `words` the messages. `starting`
and the requests of trainings, fine-tunings and benchmarks are what `vernier.cli` calls too. May import everything but
`cli`. The names are reached through `vernier` itself, which imports them when they are used.
"""
