"""Federated methods. One file is one paper; a method is a factory that closes over its hyperparameters."""

from fedkd.methods.fedavg import fedavg
from fedkd.methods.fedhe import fedhe
from fedkd.methods.private import agg, private

__all__ = ['agg', 'fedavg', 'fedhe', 'private']
