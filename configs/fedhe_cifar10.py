"""FedHe on CIFAR-10, ten clients (Chan and Ngai, 2021, Figures 4, 6, 7, 8).

  python -m launch.main --config=configs/fedhe_cifar10.py:small,method=fedhe,zoo=hetero --workdir=runs/fedhe_cifar10

Profiles, zoo and methods as configs/fedhe_mnist.py. Measured with `small`, zoo=hetero, seeds 0, 1, 2, one core:
Private 45.82 ± 0.49 % at commit 95b9020 (results/he-cifar10-hetero), 18 points below its training accuracy. With a
decay of 0.99 in BatchNorm, whose running statistics had then not forgotten their start, it had 40.90 ± 1.95, FedHe
40.33 ± 1.10 and AGG 42.90 ± 0.84 (commit 0ba9864); FedMD 50.50 ± 0.88 (c8a92e6) makes 2.3 times the steps, a third on
public images.
The paper, after 50 000 client updates of the full nets, has 62 % for FedHe and 57 for Private (hetero), 66 and 62.5
(homo); not run here.
"""

from configs import fedhe_mnist


def get_config(arg=''):
  config = fedhe_mnist.get_config(arg)
  config.name = config.name.replace('mnist', 'cifar10')
  if config.data.name == 'mnist':
    config.data.name = 'cifar10'
  return config
