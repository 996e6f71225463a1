#!/bin/sh
# Beyond the paper, on one GPU: sh experiments/frontier.sh mnist | dynamic | atari | screens
# DARN_DATA names the folder of the data. A training goes in parts of SECONDS (540) and is resumed bit for bit, so this
# can be stopped at any moment and started again: finished rows, and finished parts of a training, are kept.
set -eu
limit=${SECONDS_A_PART:-540}

# Repeats a command that trains until it ends by itself; after each part it is interrupted, and keeps a checkpoint.
in_parts() {
  while :; do
    code=0
    timeout --foreground --signal=INT --kill-after=300 "$limit" "$@" || code=$?
    [ "$code" = 124 ] || return "$code"
  done
}

# Trains a variant of a recipe, and prints its -log p on the validation rows: variant NAME RECIPE FIELDS...
variant() {
  out=runs/frontier/$1
  shift
  if [ ! -e "$out/recipe.json" ]; then  # one epoch at least, so that there is a run to resume
    code=0
    timeout --foreground --signal=INT --kill-after=300 "$limit" darn train "$@" --out "$out" || code=$?
    [ "$code" = 0 ] || [ "$code" = 124 ] || return "$code"
  fi
  in_parts darn train "$@" --out "$out" --resume
  darn eval "$out" --split valid --samples 8 --repeats 1
}

case ${1:-} in
mnist)
  # What is to mend the gap to 78.0: one change at a time, then all of them; chosen by -log p of the validation rows
  # (mnist-frontier: 77.84 on 2,000 of them). 130 epochs are 870 s on an H200.
  variant dropout-0.4 mnist-frontier --dropout 0.4
  variant dropout-0.5 mnist-frontier --dropout 0.5
  variant moved mnist-frontier --moved 0.25
  variant code-32 mnist-frontier --n_h 32
  variant code-16 mnist-frontier --n_h 16
  variant two-samples mnist-frontier --n_samples 2 --batch 64
  variant all mnist-frontier-moved
  # Then: the best fields into the recipe mnist-frontier, and its test rows once:
  # darn reproduce table2 --rows mnist-frontier --again
  ;;
dynamic)
  in_parts darn reproduce dynamic --rows mnist-frontier-dynamic
  ;;
atari)
  # One epoch of 85,000 frames a row: four minutes on an H200 at 2.5 ms a frame.
  for game in seaquest riverraid space_invaders freeway pong; do
    for row in "$game-frontier" "$game-frontier-episodes" "$game-frontier-plain" "$game-frontier-plain-episodes"; do
      in_parts darn reproduce atari --rows "$row"
    done
  done
  ;;
screens)
  # Where the paper's network is still ahead: Freeway's ten cars follow one clock, and after one epoch neither the code
  # nor the convolutions, which see two lanes, have found it. A slower rise of the code's cost, or a view of the screen.
  variant freeway-slow atari/freeway-frontier --epochs 4 --warmup_steps 8000
  variant freeway-wide atari/freeway-frontier --conv_dilations 1,2,4,8,16,32
  variant pong-slow atari/pong-frontier --epochs 4 --warmup_steps 8000
  ;;
*)
  echo "usage: sh experiments/frontier.sh mnist | dynamic | atari | screens" >&2
  exit 2
  ;;
esac
