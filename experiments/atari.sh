#!/bin/sh
# Section 5.3 on one GPU, from recorded frames to figures: sh experiments/atari.sh
# DARN_DATA names the folder with atari/GAME.npy.xz; where a game is not there it is recorded first (CPU, 10 million
# emulator frames a game). Every step can be interrupted and started again: finished parts are kept.
set -eu
for game in freeway pong space_invaders riverraid seaquest; do
  darn data "atari/$game" >/dev/null 2>&1 || darn data atari --game "$game"
done
python -m benchmarks.atari                       # share of a plain product, memory, wavefront sampling
for game in pong freeway space_invaders riverraid seaquest; do
  darn reproduce atari --rows "$game"            # both splits, FVSBN, Bernoullis, xz, figure 3; periods for pong
done
darn reproduce fig4
darn reproduce fig5
