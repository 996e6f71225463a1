"""Training: optimisers, the compiled step and epoch, the loop around them, checkpoints."""

from darn.training._checkpoint import checkpoint_host as checkpoint_host
from darn.training._checkpoint import load_checkpoint as load_checkpoint
from darn.training._checkpoint import save_checkpoint as save_checkpoint
from darn.training._loop import Fit as Fit
from darn.training._loop import fit as fit
from darn.training._optim import make_optimizer as make_optimizer
from darn.training._optim import rmsprop_graves as rmsprop_graves
from darn.training._step import Program as Program
from darn.training._step import TrainState as TrainState
from darn.training._step import compiling as compiling
from darn.training._step import goal as goal
from darn.training._sweep import Group as Group
from darn.training._sweep import Record as Record
from darn.training._sweep import plan as plan
from darn.training._sweep import train_group as train_group
