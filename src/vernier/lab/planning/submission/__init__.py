"""Scripts that submit a training to several hosts: Slurm, Kubernetes, or ssh and torchrun.

`job` reads a machine file and works out the training's command; `scripts` fills in the template of a scheduler.
May import config, models and wording. The command is `vernier submit`, in `api.planning`; what the processes do
once they are started is `engine.processes`.
"""
