"""The training loop and what it stands on: set-up, step, evaluation, checkpoints, stopping, resuming."""
