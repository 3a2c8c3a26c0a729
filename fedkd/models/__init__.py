"""Client architectures, as Flax modules.

The contract: fields `classes` and `lowering`; `features(x, train) -> f`, `head(f) -> logits`,
`__call__(x, train) -> (logits, {'features': f})`; variables {'params', 'batch_stats'}.
"""

from fedkd.models.cnn import FourConv, ThreeConv, TwoConv
from fedkd.models.lenet import LeNet
from fedkd.models.mlp import MLP

__all__ = ['MLP', 'FourConv', 'LeNet', 'ThreeConv', 'TwoConv']
