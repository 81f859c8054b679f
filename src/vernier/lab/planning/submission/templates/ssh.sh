#!/bin/bash
# {{ about }}. Run it where ssh reaches every host without a password.
# Exit code: 0 finished; {{ stopped }} stopped, run it again to resume; 1 failed.
hosts=({{ job.host_names | shell }})
training=$(cat <<'END'
{% for line in setup %}
{{ line }}
{% endfor %}
{# Quoted as a word, the rank would not be the variable that each host gets: it is put in after quoting. #}
exec {{ submission.torchrun(address, "RANK") | shell | replace("=RANK", '="$rank"') }}
END
)
started=()
for rank in "${!hosts[@]}"; do
  # -tt: a host whose connection ends gets SIGHUP, and saves
  ssh -tt -o BatchMode=yes -o ServerAliveInterval=15 "${hosts[$rank]}" "rank=$rank
$training" < /dev/null &
  started+=($!)
done
trap 'interrupted=1; kill -TERM "${started[@]}" 2> /dev/null' HUP INT TERM
result=0
for rank in "${!hosts[@]}"; do
  interrupted=1
  while [ $interrupted -eq 1 ]; do  # a signal ends the waiting before the training
    interrupted=0
    wait "${started[$rank]}"
    code=$?
  done
  case $code in
    0) ;;
    {{ stopped }}|129|130|143) [ $result -eq 1 ] || result={{ stopped }} ;;
    *) echo "${hosts[$rank]}: exit code $code" >&2; result=1 ;;
  esac
done
exit $result
