#!/bin/bash
# nvidia-resnet50-90e: 2 hosts x 8 processes. Run it where ssh reaches every host without a password.
# Exit code: 0 finished; 75 stopped, run it again to resume; 1 failed.
hosts=(node1 node2)
training=$(cat <<'END'
source /shared/vernier/bin/activate
export NCCL_SOCKET_IFNAME=ib0
exec python -P -m vernier.engine.processes.torchrun --nnodes=2 --nproc-per-node=8 --node-rank="$rank" --master-addr=node1 --master-port=29500 --no-python vernier train nvidia-resnet50-90e --data /data/imagenet --out /shared/runs --device cuda --procs 16 --set 'machine.precision="bf16"' --max-time 12h
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
    75|129|130|143) [ $result -eq 1 ] || result=75 ;;
    *) echo "${hosts[$rank]}: exit code $code" >&2; result=1 ;;
  esac
done
exit $result
