"""A run's checkpoints: what one holds, how it is written, which one a run resumes from.

`contents` knows the files of a checkpoint, `writer` writes them while training goes on, `resume` chooses one,
`takeover` reads those of other programs. That a checkpoint appears on disk whole or not at all is `vernier.store`'s
business; `engine.training.loop` says when to save.
"""
