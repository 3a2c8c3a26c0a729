"""FedGen and its baselines on MNIST, twenty clients with label skew (Zhu, Hong, Zhou, 2021, Tables 1 and 4).

  python -m launch.main --config=configs/fedgen.py:small,method=fedgen,alpha=0.1 --workdir=runs/fedgen

15 000 images are partitioned by a Dirichlet distribution (`alpha`: 0.05, 0.1, 1 or 10); half of the clients take part
in a round, with 20 batches of 32. Every client is tested on the labels that it has: RESULTS.md pools these rows, as the
authors' code does; `accuracy` is over the test rows of all clients. BatchNorm statistics stay a client's own, as in the
authors' code; fedensemble and feddf, whose servers need whole models, average them. FedProx has the authors' weight
decay too.

`method`: fedgen, fedavg, fedprox, fedensemble (FedAvg evaluated by the sum of all models' logits), fd (FedDistill),
feddistill_plus, feddf (FedDFusion), private, agg. `share`: all, or head, which only fedgen, fedavg (as LG-FedAvg),
feddistill_plus, private and agg have: heads alone see no images on feddf's server, and the paper does not say what
FedDFusion does with them. The public images of feddf, a third of every client's, are trained on by all clients; the
paper does not say how many FedDFusion has.

`paper`: 200 rounds. `small`: 100. `smoke`: seconds, on the embedded images. Results: RESULTS.md.
"""

from fedkd import config as base

TURN = {'steps': 20, 'epochs': None, 'batch': 32, 'keep_optimizer': False}
DISTILL = {'knowledge': 'logits', 'distance': 'kl', 'others_only': False, 'average': 'all'}
METHODS = {  # name in the config string: (method, what the paper or its code sets in addition to TURN)
  'fedavg': ('fedavg', {'statistics': 'own'}),
  'fedensemble': ('fedavg', {'ensemble': True}),
  'fedprox': ('fedprox', {'mu': 1.0, 'statistics': 'own'}),
  'fd': ('fd', DISTILL),
  'feddistill_plus': ('fd', {**DISTILL, 'share_weights': True, 'share': 'net'}),
  'feddf': ('feddf', {'server_steps': 100, 'server_batch': 32}),  # ours
}
HEADS = {
  'fedgen': ('fedgen', {'share': 'head'}),
  'fedavg': ('lg_fedavg', {'share': 'head'}),
  'feddistill_plus': ('fd', {**DISTILL, 'share_weights': True, 'share': 'head'}),
}
DECAYING = 'fedkd.optimizers:sgd'  # which clips as well: at a norm that no gradient has
ALONE = {'private': ('private', {}), 'agg': ('agg', {})}


def method(name, share):
  """The settings of a method."""
  if share == 'head' and name not in {**HEADS, **ALONE}:
    known = ', '.join(sorted({**HEADS, **ALONE}))
    raise base.ConfigError(f'method={name!r} does not share heads alone; choose one of {known}, or set share=all')
  name, special = {**METHODS, **(HEADS if share == 'head' else {})}.get(name, (name, {}))
  known = base.method(name)
  return base.method(name, **{field: value for field, value in {**TURN, **special}.items() if field in known})


def get_config(arg=''):
  choice = base.parse(
    arg,
    ('paper', 'small', 'smoke'),
    method='fedgen',
    alpha=('0.1', '0.05', '1', '10'),
    share=('all', 'head'),
    clients='',
  )
  config = base.default()
  config.name = f'fedgen_mnist_{choice.alpha}_{choice.share}'
  config.method = method(choice.method, choice.share)
  config.optimizer = base.optimizer('sgd', learning_rate=0.01)
  if choice.method == 'fedprox':
    config.optimizer = base.optimizer(DECAYING, learning_rate=0.01, momentum=0.0, weight_decay=1e-3, clip=1e9)
  config.schedule = base.schedule('step', every=1, decay=0.99)
  config.plan = base.plan('sampled', ratio=0.5)
  config.data.partition = base.partition('fedgen_dirichlet', concentration=float(choice.alpha))
  config.data.update({'name': 'mnist', 'normalise': 'symmetric', 'validation': 0.0, 'public_share': 1 / 3})
  config.groups = ({'model': 'FedGenCNN'},)
  config.data.clients = base.number('clients', choice.clients or 20, int, least=2)
  config.seeds, config.rounds, config.eval_every, config.eval_rows = (0, 1, 2), 200, 20, 0
  if choice.profile == 'small':
    config.rounds = 100
  if choice.profile == 'smoke':
    config.seeds, config.rounds, config.eval_every = (0,), 2, 1
    config.data.update({'name': 'mnist_5k', 'clients': 4})
  return base.finish(config, choice)
