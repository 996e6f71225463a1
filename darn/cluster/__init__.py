"""Work for the workers of a cluster: a trained model as a function of batches of rows."""

from darn.cluster._compressor import Compressor as Compressor
from darn.cluster._sampler import Sampler as Sampler
from darn.cluster._scorer import Scorer as Scorer
