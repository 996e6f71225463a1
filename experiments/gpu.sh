#!/bin/sh
# Everything that is measured on one GPU, in one go, most wanted first: sh experiments/gpu.sh [FOLDER]
# DARN_DATA names the folder of the data. Each part has a time limit in seconds, fails by itself, and leaves a record and
# what it printed in FOLDER (results/bench); names of parts after FOLDER run these alone. DEVICE (h200) begins the names
# of the records. With OTHER=FILE.drn, the file of the first test rows that another machine made by mnist-frontier is
# read as well.
set -u
out=${1:-results/bench}
[ $# -gt 0 ] && shift
wanted=${*:-draws protocol forecast rate laws drawing frontier}
python=${PYTHON:-python3}
model=results/models/mnist-frontier.safetensors
device=${DEVICE:-h200}
mkdir -p "$out"
export PYTHONUNBUFFERED=1

# part NAME SECONDS COMMAND...
part() {
  name=$1 limit=$2 began=$(date +%s)
  shift 2
  case " $wanted " in *" $name "*) ;; *) return ;; esac
  code=0
  timeout --kill-after=5 "$limit" "$@" >"$out/gpu-$name.txt" 2>&1 || code=$?
  echo "== $name: exit code $code after $(($(date +%s) - began)) s of $limit"
  tail -n 25 "$out/gpu-$name.txt" | cut -c 1-1000
}

part draws 75 "$python" -m benchmarks.h200 --out "$out/$device-draws.json"
# The paper's protocol on all test rows of MNIST: 10^10 importance weights.
part protocol 160 "$python" -m darn eval results/models/mnist-500.safetensors --samples 100000 --repeats 10 --json
part forecast 250 "$python" -m benchmarks.forecast --out "$out/$device-forecast.json"
part rate 100 "$python" -m benchmarks.packs --only rate --out "$out/$device-packs.json"
part laws 300 env JAX_PLATFORMS= XLA_FLAGS= XLA_PYTHON_CLIENT_PREALLOCATE=false \
  "$python" -m pytest -m gpu -vv -W default -n "${WORKERS:-10}" --dist worksteal \
  tests/test_walk_kernel.py tests/test_layers.py tests/test_codec.py
part drawing 75 "$python" -m benchmarks.convolutions drawing "$model" --repeats 3 --out "$out/$device-drawing.json"
part frontier 210 env JAX_LOG_COMPILES=1 "$python" -m benchmarks.codec frontier "$model" --out "$out" \
  --rows "${ROWS:-10000}" --first "${FIRST:-1500}" --repeats 1 ${OTHER:+--read "$OTHER"}
