"""A shell script that starts torchrun on every host through ssh, waits for all, and gives the training's exit code."""

import shlex

from vernier.errors import EXIT_STOPPED, ConfigError
from vernier.references import given

from .job import Submission, shell_lines

_STOPPED_CODES = (EXIT_STOPPED, 129, 130, 143)
"""Stopped by itself, or by SIGHUP, SIGINT or SIGTERM."""


def ssh_script(submission: Submission) -> str:
    """The script, to be run on a machine from which ssh reaches every host without a password. Raises ConfigError."""
    hosts = submission.job.host_names
    if not hosts:
        raise ConfigError(f'{given("to", "ssh")}: set host_names in [job], e.g. host_names = ["node1", "node2"].')
    address = hosts[0].rpartition("@")[2]
    training = shlex.join(submission.torchrun(address=address, node_rank="RANK")).replace("=RANK", '="$rank"', 1)
    return (
        "\n".join(
            [
                "#!/bin/bash",
                f"# {submission.describe()}. Run it where ssh reaches every host without a password.",
                f"# Exit code: 0 finished; {EXIT_STOPPED} stopped, run it again to resume; 1 failed.",
                f"hosts=({shlex.join(hosts)})",
                "training=$(cat <<'END'",
                *shell_lines(submission.job),
                f"exec {training}",
                "END",
                ")",
                "started=()",
                'for rank in "${!hosts[@]}"; do',
                "  # -tt: a host whose connection ends gets SIGHUP, and saves",
                '  ssh -tt -o BatchMode=yes -o ServerAliveInterval=15 "${hosts[$rank]}" "rank=$rank',
                '$training" < /dev/null &',
                "  started+=($!)",
                "done",
                "trap 'interrupted=1; kill -TERM \"${started[@]}\" 2> /dev/null' HUP INT TERM",
                "result=0",
                'for rank in "${!hosts[@]}"; do',
                "  interrupted=1",
                "  while [ $interrupted -eq 1 ]; do  # a signal ends the waiting before the training",
                "    interrupted=0",
                '    wait "${started[$rank]}"',
                "    code=$?",
                "  done",
                "  case $code in",
                "    0) ;;",
                f"    {'|'.join(map(str, _STOPPED_CODES))}) [ $result -eq 1 ] || result={EXIT_STOPPED} ;;",
                '    *) echo "${hosts[$rank]}: exit code $code" >&2; result=1 ;;',
                "  esac",
                "done",
                "exit $result",
            ]
        )
        + "\n"
    )
