"""fedkd: federated learning by knowledge distillation across clients whose models differ, in JAX."""

__version__ = '0.1.0'
