"""Training: optimisers, compiled steps and epochs, one loop for one model or many, checkpoints."""

from darn.training._checkpoint import checkpoint_host as checkpoint_host
from darn.training._checkpoint import load_checkpoint as load_checkpoint
from darn.training._checkpoint import save_checkpoint as save_checkpoint
from darn.training._fit import Fit as Fit
from darn.training._fit import fit as fit
from darn.training._group import train_group as train_group
from darn.training._hyper import Hyper as Hyper
from darn.training._hyper import Terms as Terms
from darn.training._loop import Loop as Loop
from darn.training._loop import Record as Record
from darn.training._metrics import selection_bound as selection_bound
from darn.training._metrics import validation_samples as validation_samples
from darn.training._optim import make_optimizer as make_optimizer
from darn.training._optim import make_schedule as make_schedule
from darn.training._plan import Group as Group
from darn.training._plan import Make as Make
from darn.training._plan import plan as plan
from darn.training._plan import shapes as shapes
from darn.training._rows import Batch as Batch
from darn.training._rows import DeviceRows as DeviceRows
from darn.training._step import Program as Program
from darn.training._step import TrainState as TrainState
from darn.training._step import compiling as compiling
from darn.training.weight_noise import NoisyGradients as NoisyGradients
from darn.training.weight_noise import WeightNoise as WeightNoise
from darn.training.weight_noise import gradient_and_squares as gradient_and_squares
