"""Accuracy against megabytes of four methods under five codecs."""

import json
import pathlib
from collections.abc import Sequence

import jax
import matplotlib.figure
import numpy as np
import optax

import fedkd
from fedkd import codecs, files, ledger, methods
from fedkd.analysis.figures.panels import logarithmic
from fedkd.analysis.figures.style import COLOURS, MARKERS
from fedkd.data import sources
from fedkd.data.splits import partition

ROUNDS, EVERY, SEEDS, PUBLIC = 20, 4, 3, 500
TX = optax.sgd(0.05)
TURN = {'steps': 20, 'epochs': None, 'batch': 32}
METHODS = {
  'fedmd': methods.fedmd(TX, subset=200, digest_batch=50, **TURN),
  'fedhe': methods.fedhe(TX, **TURN),
  'fedproto': methods.fedproto(TX, inference='prototypes', candidates='known', **TURN),
  'fedavg': methods.fedavg(TX, **TURN),
}
TITLES = {'fedmd': 'FedMD', 'fedhe': 'FedHe', 'fedproto': 'FedProto', 'fedavg': 'FedAvg'}
BOTH = {'none': codecs.identity(), 'float16': codecs.float16()}
BOTH |= {f'{bits} bits': codecs.quantised(bits) for bits in (8, 4)}


def coded(name: str) -> dict:
  """{codec: the method}."""
  out = {codec: codecs.coded(METHODS[name], made, made) for codec, made in BOTH.items()}
  return {**out, 'top 10 % up': codecs.coded(METHODS[name], codecs.top_k(0.1, changes=name != 'fedmd'))}


def measured(method, federation, x, y) -> dict:
  """Every few rounds: megabytes up and down of all clients together, and accuracies [seeds], means over clients."""
  simulation = fedkd.simulation(method, federation)
  run = jax.jit(jax.vmap(lambda state: simulation.run(state, EVERY)))
  accuracy = jax.jit(jax.vmap(lambda state: simulation.accuracy(state, x, y).mean()))
  state = jax.vmap(simulation.init)(jax.random.split(jax.random.key(0), SEEDS))
  sent, out = np.zeros(2), {'rounds': [], 'mb_up': [], 'mb_down': [], 'accuracy': []}
  for t in range(EVERY, ROUNDS + 1, EVERY):
    state, report = run(state)
    bytes_of = lambda counts: sum(size for _, size in ledger.total(counts).values()) / SEEDS / 1e6
    sent += [bytes_of(report.up), bytes_of(report.down)]
    values = (t, *np.round(sent, 6).tolist(), np.round(np.asarray(accuracy(state)), 4).tolist())
    for field, value in zip(out, values, strict=True):
      out[field].append(value)
  return out


def figure(results: dict) -> matplotlib.figure.Figure:
  """A panel per method: mean accuracy over megabytes up and down, a line per codec, and the range over seeds."""
  drawn = matplotlib.figure.Figure(figsize=(9, 6.4), layout='constrained')
  for axes, (name, by_codec) in zip(drawn.subplots(2, 2).flat, results.items(), strict=True):
    for i, (codec, one) in enumerate(by_codec.items()):
      mb, accuracy = np.add(one['mb_up'], one['mb_down']), 100 * np.array(one['accuracy'])
      axes.plot(mb, accuracy.mean(1), color=COLOURS[i], marker=MARKERS[i], markersize=5, label=codec)
      axes.fill_between(mb, accuracy.min(1), accuracy.max(1), color=COLOURS[i], alpha=0.2, linewidth=0)
    axes.set(title=TITLES[name], xlabel='MB up and down, all clients', ylabel='accuracy (%)')
    logarithmic(axes)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
  return drawn


def run(names: Sequence[str], out: pathlib.Path) -> None:
  """Runs these methods under every codec, and draws the figure of all four."""
  out.mkdir(parents=True, exist_ok=True)
  source = sources.load('mnist_5k')
  rows = np.random.default_rng(0).permutation(len(source.train_label))
  public, own = rows[:PUBLIC], rows[PUBLIC:]
  parts = [own[part] for part in partition.dirichlet(source.train_label[own], 10, 0, 0.5)]
  federation = fedkd.federation(source.train_image, source.train_label, parts, fedkd.models.MLP((64,)), public=public)
  for name in names:
    found = {}
    for codec, method in coded(name).items():
      found[codec] = measured(method, federation, source.test_image, source.test_label)
      print(name, codec, {field: values[-1] for field, values in found[codec].items()}, flush=True)
    files.write_json(out / f'{name}.json', found)
  results = {name: json.loads((out / f'{name}.json').read_text()) for name in METHODS}
  figure(results).savefig(out / 'accuracy_mb.png', dpi=120)
