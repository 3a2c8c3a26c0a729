"""Federated methods. One file is one paper; a method is a factory that closes over its hyperparameters."""

from fedkd.methods.coboosting import coboosting
from fedkd.methods.dense import dense
from fedkd.methods.ditto import ditto
from fedkd.methods.dsfl import dsfl
from fedkd.methods.fccl import fccl
from fedkd.methods.fd import fd
from fedkd.methods.fedapen import fedapen
from fedkd.methods.fedavg import fedavg
from fedkd.methods.fedbabu import fedbabu
from fedkd.methods.feddf import feddf
from fedkd.methods.federated_dropout import federated_dropout
from fedkd.methods.fedgen import fedgen
from fedkd.methods.fedgh import fedgh
from fedkd.methods.fedgkt import fedgkt
from fedkd.methods.fedh2l import fedh2l
from fedkd.methods.fedhe import fedhe
from fedkd.methods.fedkd import fedkd
from fedkd.methods.fedkt import fedkt
from fedkd.methods.fedmd import fedmd
from fedkd.methods.fedmrl import fedmrl
from fedkd.methods.fedper import fedper
from fedkd.methods.fedproto import fedproto
from fedkd.methods.fedprox import fedprox
from fedkd.methods.fedre import fedre
from fedkd.methods.fedrep import fedrep
from fedkd.methods.fedrolex import fedrolex
from fedkd.methods.fedtgp import fedtgp
from fedkd.methods.felo import felo
from fedkd.methods.fiarse import fiarse
from fedkd.methods.fml import fml
from fedkd.methods.heterofl import heterofl
from fedkd.methods.ktpfl import ktpfl
from fedkd.methods.lg_fedavg import lg_fedavg
from fedkd.methods.moon import moon
from fedkd.methods.private import agg, private, public
from fedkd.methods.rhfl import rhfl
from fedkd.methods.scaffold import scaffold
from fedkd.methods.scarlet import scarlet
from fedkd.methods.selective_fd import selective_fd
from fedkd.methods.velo import velo

__all__ = [
  'agg',
  'coboosting',
  'dense',
  'ditto',
  'dsfl',
  'fccl',
  'fd',
  'fedapen',
  'fedavg',
  'fedbabu',
  'feddf',
  'federated_dropout',
  'fedgen',
  'fedgh',
  'fedgkt',
  'fedh2l',
  'fedhe',
  'fedkd',
  'fedkt',
  'fedmd',
  'fedmrl',
  'fedper',
  'fedproto',
  'fedprox',
  'fedre',
  'fedrep',
  'fedrolex',
  'fedtgp',
  'felo',
  'fiarse',
  'fml',
  'heterofl',
  'ktpfl',
  'lg_fedavg',
  'moon',
  'private',
  'public',
  'rhfl',
  'scaffold',
  'scarlet',
  'selective_fd',
  'velo',
]
