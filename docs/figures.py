"""Draws docs/gallery/: `python docs/figures.py`, minutes on two cores. The documentation shows what was drawn last.

Eight clients with two architectures and skewed labels have 3 000 embedded MNIST digits, and learn them by six methods,
with three seeds.
"""

import pathlib

import jax
import numpy as np
import optax

import fedkd
from fedkd import analysis, methods, models, plan
from fedkd.data import sources
from fedkd.data.splits import partition

GALLERY = pathlib.Path(__file__).parent / 'gallery'
CLIENTS, CLASSES, ROUNDS = 8, 10, 30
STEPS = {'steps': 5, 'batch': 32}


def federation(digits, parts, **given) -> fedkd.Federation:
  """Half of the clients have a LeNet."""
  nets = [models.LeNet(classes=CLASSES)] * 4 + [models.MLP((64, 84), classes=CLASSES)] * 4
  return fedkd.federation(digits.train_image, digits.train_label, parts, nets, **given)


def simulations(digits) -> dict[str, fedkd.Simulation]:
  """By method."""
  tx = optax.adam(2e-3)
  parts = partition.dirichlet(digits.train_label[:3000], CLIENTS, 0, 0.3)
  own = federation(digits, parts, public=np.arange(3000, 4000))
  seeds = federation(digits, parts, shared=[rows[-20:] for rows in parts])
  return {
    'private': fedkd.simulation(methods.private(tx, **STEPS), own),
    'agg': fedkd.simulation(methods.agg(tx, **STEPS), own),
    'fedhe': fedkd.simulation(methods.fedhe(tx, **STEPS), own),
    'fedproto': fedkd.simulation(methods.fedproto(tx, keep_optimizer=True, **STEPS), own),
    'fedmd': fedkd.simulation(methods.fedmd(tx, subset=200, digest_batch=32, digest_loss='kl', **STEPS), own),
    'fedh2l': fedkd.simulation(methods.fedh2l(tx, batch=20), seeds),
  }


def of_frames(frame):
  """Figures of the tidy frame of all runs."""
  draw('curves', analysis.curves(frame))
  draw('pareto', analysis.pareto(frame.query("run != 'agg'")))
  draw('gain', analysis.gain(frame.query("run not in ('agg', 'fedh2l')"), by='architecture'))
  draw('worst', analysis.worst(frame))
  draw('clients', analysis.clients(frame[frame['run'] == 'fedhe']))
  draw('violations', analysis.violations(frame[frame['run'] == 'fedh2l']))


def of_labels(own):
  """Figures of who has what, and when."""
  label = np.asarray(own.pool.label)
  rows = [(table.index[i], table.size[i]) for table in own.private for i in range(len(table.size))]
  counts = np.stack([np.bincount(label[index[:size]], minlength=CLASSES) for index, size in rows])
  draw('labels', analysis.labels(counts))
  draw('label_bars', analysis.label_bars(counts))
  sizes = [len(group.ids) for group in own.groups]
  draw('timeline', analysis.timeline(plan.asynchronous(spread=0.6, stale=True)(sizes, 60), own.groups))


def of_predictions(simulation, test):
  """Figures of one seed of FedProto, over rounds and at its end."""
  x, y = test
  state, known = simulation.init(jax.random.key(0)), []
  for _ in range(10):
    known.append(np.nanmean(analysis.per_class(simulation.predict(state, x), y, classes=CLASSES), 0))
    state, _ = simulation.run(state, rounds=3)
  draw('class_knowledge', analysis.class_knowledge(np.stack(known), 3 * np.arange(10), 'accuracy'))
  draw('class_accuracy', analysis.class_accuracy(analysis.per_class(simulation.predict(state, x), y, classes=CLASSES)))
  shown, outputs = x[:150], []
  for client in (0, 4):
    module, variables = simulation.model(state, client)
    outputs.append(np.asarray(module.apply(variables, shown, False)[1]['features']))
  which = np.repeat([0, 1], len(shown))
  axes = analysis.feature_map(np.concatenate(outputs), np.tile(y[:150], 2), which, ['client 0, LeNet', 'client 4, MLP'])
  draw('feature_map', axes)


def draw(name, axes):
  """Writes a figure by the name of the function that drew it."""
  analysis.save(axes, GALLERY / f'{name}.png')
  print(name)


if __name__ == '__main__':
  digits = sources.load('mnist_5k')
  test = digits.test_image, digits.test_label
  made = simulations(digits)
  of_labels(made['private'].federation)
  of_predictions(made['fedproto'], test)
  _, history = fedkd.train(made, jax.random.split(jax.random.key(0), 3), rounds=ROUNDS, test=test, every=3)
  of_frames(history.frame())
