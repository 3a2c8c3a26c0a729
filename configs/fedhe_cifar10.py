"""FedHe on CIFAR-10, ten clients (Chan and Ngai, 2021, Figures 4, 6, 7, 8).

  python -m launch.main --config=configs/fedhe_cifar10.py:small,method=fedhe,zoo=hetero --workdir=runs/fedhe_cifar10

Profiles, zoo and methods as in configs/fedhe_mnist.py. Results: RESULTS.md, he-cifar10-hetero and he-cifar10-homo. With
different nets FedHe is 2.34 ± 0.72 points below Private in `small` (1 500 client updates, seeds 0, 1, 2), and 0.29 ±
1.39 above it in `medium` (15 000). The paper, after 50 000 client updates of the full nets, has 62 % for FedHe and 57
for Private (hetero), 66 and 62.5 (homo); not run here.
"""

from configs import fedhe_mnist


def get_config(arg=''):
  config = fedhe_mnist.get_config(arg)
  config.name = config.name.replace('mnist', 'cifar10')
  if config.data.name == 'mnist':
    config.data.name = 'cifar10'
  return config
