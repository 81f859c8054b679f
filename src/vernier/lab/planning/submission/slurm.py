"""A batch script for Slurm: one task per device, and the job queues again until the training is finished."""

import shlex

from vernier.config.durations import parse_duration
from vernier.errors import EXIT_STOPPED, ConfigError
from vernier.references import use

from .job import SAVE_S, Submission, shell_lines

REQUEUE_S = 60
"""The training ends this long before the job does, so that there is time to queue it again."""


def slurm_script(submission: Submission) -> str:
    """The script, to be given to sbatch. Raises ConfigError."""
    if submission.device == "mps":
        raise ConfigError(f"device = mps: Slurm does not run on macOS. Use another device, or {use('to', 'ssh')}.")
    # Tasks that are still ending are not killed when the first has ended with 75: srun would end with their signal.
    training = ["srun", "--kill-on-bad-exit=0"]
    if submission.job.cpus_per_process:  # srun does not take it over from sbatch since Slurm 22.05
        training.append(f"--cpus-per-task={submission.job.cpus_per_process}")
    training += submission.command(*(("--max-time", "auto") if submission.job.time_limit else ()))
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {options}" for options in _options(submission)),
        f"# {submission.describe()}. Submit it with sbatch.",
        f"# A training that is stopped by the time limit or preempted saves, ends with exit code {EXIT_STOPPED} and is "
        "queued again.",
        *shell_lines(submission.job),
        'MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export MASTER_ADDR",
        *([f"export MASTER_PORT={submission.job.port}"] if submission.job.port else ()),
        *(_end_of_job() if submission.job.time_limit else ()),
        shlex.join(training),
        "code=$?",
        f'if [ $code -eq {EXIT_STOPPED} ]; then scontrol requeue "$SLURM_JOB_ID"; fi',
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def _options(submission: Submission) -> list[str]:
    job = submission.job
    tasks = f"--nodes={job.host_count} --ntasks-per-node={job.processes_per_host}"
    options = [
        f"--job-name={submission.name}",
        tasks + (f" --cpus-per-task={job.cpus_per_process}" if job.cpus_per_process else ""),
    ]
    if submission.device == "cuda":
        options.append(f"--gpus-per-node={job.processes_per_host}")
    if job.memory_gb_per_host:
        options.append(f"--mem={job.memory_gb_per_host}G")
    if job.time_limit:
        options.append(f"--time={_slurm_time(round(parse_duration(job.time_limit)))}")
    return [*options, f"--signal=USR1@{SAVE_S} --requeue --open-mode=append", *job.slurm_options]


def _slurm_time(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


def _end_of_job() -> list[str]:
    """Slurm before 23.02 does not say in a variable when a job ends."""
    end = 'date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)" +%s'
    return [f"export SLURM_JOB_END_TIME=$((${{SLURM_JOB_END_TIME:-$({end})}} - {REQUEUE_S}))"]
