#!/bin/bash
{# Since Slurm 22.05 srun does not take the cores of a task over from sbatch. #}
{% set cpus = " --cpus-per-task=%d" % job.cpus_per_process if job.cpus_per_process else "" %}
#SBATCH --job-name={{ name }}
#SBATCH --nodes={{ job.host_count }} --ntasks-per-node={{ job.processes_per_host }}{{ cpus }}
{% if device == "cuda" %}
#SBATCH --gpus-per-node={{ job.processes_per_host }}
{% endif %}
{% if job.memory_gb_per_host %}
#SBATCH --mem={{ job.memory_gb_per_host }}G
{% endif %}
{% if time %}
#SBATCH --time={{ time }}
{% endif %}
#SBATCH --signal=USR1@{{ save_s }} --requeue --open-mode=append
{% for option in job.slurm_options %}
#SBATCH {{ option }}
{% endfor %}
# {{ about }}. Submit it with sbatch.
# A run that is stopped by the time limit or preempted saves, ends with exit code {{ stopped }} and is queued again.
{% for line in setup %}
{{ line }}
{% endfor %}
MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR
{% if job.port %}
export MASTER_PORT={{ job.port }}
{% endif %}
{% if time %}
{# Slurm before 23.02 does not say in a variable when a job ends. The training ends 60 s before, to be queued again. #}
export SLURM_JOB_END_TIME=$((${SLURM_JOB_END_TIME:-$(date -d "$(squeue -h -j "$SLURM_JOB_ID" -o %e)" +%s)} - 60))
{% endif %}
{# Tasks that are still ending are not killed when the first has ended with 75: srun would end with their signal. #}
srun --kill-on-bad-exit=0{{ cpus }} {{ training | shell }}{{ " --max-time auto" if time else "" }}
code=$?
if [ $code -eq {{ stopped }} ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit $code
