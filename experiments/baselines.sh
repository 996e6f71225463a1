#!/bin/sh
# The baselines of table 2 as strong as published, on one GPU: sh experiments/baselines.sh nade | eonade | eonade2 | rbm
# Each is a sweep that validation decides; a sweep that was stopped is resumed. Where ours stand, and what differs:
#   NADE     88.61 (published 88.33): a constant rate, no penalty; the best epoch was the 35th of 135, so it overfits.
#            Larochelle & Murray: plain SGD with a falling rate and early stopping; so a cosine, and weight decay.
#   EoNADE   89.04 (87.71) and, of two layers, 86.53 (85.10): validation still fell after 600 epochs. The authors' code
#            (github.com/MarcCote/NADE, deepnade/orderlessNADE.py) has rectified units, batches of 100, a rate of 0.001
#            that falls linearly to 0, momentum 0.9 after two epochs, no weight decay, hidden layers that may be
#            pretrained one by one, and weights that start from the training rows; it keeps the best epoch by validation.
#            Masks, orders, units and batches are the same here; how many epochs the published figures took is not in it.
#   RBM      86.48 (86.34): Salakhutdinov & Murray (2008): 500 units, CD with 25 steps. Ours has trained 100 epochs.
set -eu
sweep() {
  name=$1
  shift
  if [ -e "runs/sweep-$name" ]; then
    darn sweep "$name" "$@" --resume
  else
    darn sweep "$name" "$@"
  fi
}
case ${1:-} in
nade)
  sweep nade-mnist --grid weight_decay=0.0,5e-5,1e-4,2e-4,4e-4 lr=1e-4,2.5e-4 --schedule cosine --epochs 200 \
    --patience 0 --average 0.999
  ;;
eonade)
  sweep eonade-mnist --grid lr=1e-3,2e-3 weight_decay=0.0,1e-5 --epochs 2000 --validate_every 50
  ;;
eonade2)
  sweep eonade2-mnist --grid lr=1e-3,2e-3 weight_decay=0.0,1e-5 dropout=0.0,0.1 --epochs 2000 --validate_every 50
  ;;
rbm)
  python -m experiments.rbm
  ;;
*)
  echo "usage: sh experiments/baselines.sh nade | eonade | eonade2 | rbm" >&2
  exit 2
  ;;
esac
