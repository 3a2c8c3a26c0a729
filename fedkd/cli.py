"""The command `fedkd`: finds the shipped configs and programs, and starts one of them.

`configs/` and `launch/` lie beside this package in a checkout, in `fedkd/shipped/` where it was installed from a wheel.
For this process and those that it starts they are modules `configs` and `launch`, which an environment does not get.
"""

import functools
import importlib
import os
import pathlib
import sys

PACKAGE = pathlib.Path(__file__).parent
HOME = PACKAGE / 'shipped' if (PACKAGE / 'shipped').is_dir() else PACKAGE.parent

HELP = """fedkd: federated learning by knowledge distillation across clients whose models differ

  fedkd run NAME[:STRING] --workdir=DIR    run an experiment, or continue it
  fedkd sweep NAME[:STRING] --grid=...     many runs of one config, ranked by validation, the best of them tested
  fedkd compare RUN RUN ...                a table and figures of finished runs
  fedkd report RUN RUN ... --out=FILE      one page of finished runs, for a browser or an appendix
  fedkd watch DIR                          a live view of the runs below a folder
  fedkd reproduce --list                   the tables of the papers, published numbers beside ours
  fedkd benchmark --suite=digits           all methods on the same splits, nets and budgets
  fedkd export RUN --client=3 --out=DIR    a client's model for the Hugging Face hub or PyTorch
  fedkd predict RUN --client=3 IMAGE ...   what a client takes images for
  fedkd data list                          which data sets are there, and how to get the others
  fedkd bench --suite=cpu                  speed on this machine

`fedkd COMMAND --help` says more. Exit codes: 0 done, 2 refused before training, 3 stopped while training (the last
checkpoint is kept), 130 or 143 on a signal.
"""
RUN = """fedkd run NAME[:STRING] --workdir=DIR [--config.FIELD=VALUE ...]

NAME is a config below, or the path of a config file of your own. STRING chooses among its profiles, methods and zoos.
A run that was interrupted continues when it is started again with the same arguments.

  fedkd run quickstart:smoke --workdir=runs/first
  fedkd run quickstart:method=private --workdir=runs/private --config.seeds=0,1 --config.rounds=30
  fedkd run my_experiment.py --workdir=runs/mine

  --workdir=DIR            the run directory
  --config.FIELD=VALUE     any field of the config; tuples as in --config.seeds=0,1,2
  --dry_run                print parameters, message sizes and memory, and exit
  --profile_dir=DIR        write a trace for JAX's profiler
  --hosts=ADDRESS:PORT,COUNT,INDEX    this process is one of several hosts

Configs (`fedkd run NAME --help` prints the description of one, and its fields with their ranges):

"""
SWEEP = """fedkd sweep NAME[:STRING] --grid='FIELD=VALUES;...' --out=DIR [--seeds=0:3] [--config.FIELD=VALUE ...]

Runs a config at every point of a grid, ranks the points by validation accuracy, and tests the best with seeds of its
own. Every seed of a point is a run directory below DIR. A sweep that was interrupted, or is asked for more points or
seeds, goes on from what is there.

  fedkd sweep quickstart:smoke --grid='optimizer.learning_rate=log:1e-3:1e-1:3' --seeds=0:2 --out=runs/rates
  fedkd sweep quickstart --grid='optimizer.learning_rate=log:1e-4:1e-2' --search=tpe --points=20 --out=runs/tpe

  --grid=...           values (method.alpha=0.1,0.3,1), or an interval (log:LOW:HIGH or linear:LOW:HIGH, of which a
                       grid takes three values, or COUNT with :COUNT behind it)
  --out=DIR            the directory of the sweep
  --seeds=0:3          seeds of every point, FIRST:END or a list
  --test_seeds=3:6     those of the best point's test, by default as many, after the last of --seeds; none: no test
  --search=NAME        grid; or, with Optuna, random, tpe, halving
  --points=N           how many points, of random, tpe and halving
  --jobs=N             runs at once; by default one a core, on an accelerator one
  --launcher=NAME      local; here, in this process; slurm, array jobs through submitit; debug, the same on this machine
  --notraced           compile every point by itself; else points that differ in numbers share a program where they can
  --slurm=NAME=VALUE,...  parameters of submitit, such as timeout_min=60,slurm_partition=gpu
  --config.FIELD=VALUE any field of the config, at all points
"""
COMPARE = """fedkd compare RUN RUN ... [--reference=RUN] [--out=DIR] [--results=ID/PROFILE]

Prints accuracy with its interval, the difference to the reference paired over seeds, the accuracy on each client's own
test rows where it has some, the worst client, examples, megabytes and seconds of finished runs. Intervals are 95 %
Student t, below three seeds the range. A run on other data, test rows or clients than the reference is not compared,
and the table says so.

  fedkd compare runs/private runs/fedhe runs/agg --out=runs/comparison

  --reference=RUN       compare with this run; by default the first whose method is `private`
  --out=DIR             write table.csv, table.md and the accuracy over rounds, client updates and megabytes there
  --results=ID/PROFILE  write one JSON object per method there, as in the repository's results/
"""
REPORT = """fedkd report RUN RUN ... --out=FILE [--format=html|md] [--reference=RUN] [--question=TEXT]

Writes one page on finished runs, which needs no other file and no network: accuracies with intervals, figures, clients
and architectures, configs side by side, megabytes by kind of message, versions, and how to run it again. A folder
stands for the runs in it. Runs that are not finished, damaged or on other data are kept out and named.

  fedkd report runs/private runs/fedhe runs/agg --out=report.html
  fedkd report runs --out=appendix.md

  --format=html|md  a page (needs jinja2: pip install 'fedkd[report]'), or Markdown with the table in LaTeX; by
                    default what the name of --out says
  --reference=RUN   compare with this run, or the one of this method; by default one whose method is `private`
  --question=TEXT   what the runs answer, in a sentence
"""
WATCH = """fedkd watch DIR [--once]

Shows the runs below a folder, finished and running: state, rounds, the last accuracy, time left. Ends when no run is
running any more, with exit code 3 if one has failed or was stopped before its end. It only reads, on a machine of its
own or over ssh. Without a terminal it prints one table and ends.

  fedkd watch runs

  --once  print one table and end
"""
REPRODUCE = """fedkd reproduce --list | --id=ID [--profile=PROFILE] [--seeds=0,1,2] [--rows=ROW,...] | --report

Reruns the tables of the papers. Every row is a run, resumed where it stopped, and ends as a JSON object; rows whose
object is there count as done.

  fedkd reproduce --list
  fedkd reproduce --id=h2l-rmnist-a10 --profile=small --out=my_results

  --profile=PROFILE  paper (as published), medium, light, small (minutes to an hour on two cores; the default), smoke
                     (seconds); not every table has all of them
  --out=DIR          where the JSON objects go, by default results
  --workdir=DIR      where the runs go, by default runs/reproduce
  --check            build every row and count its messages, without training
  --report           write RESULTS.md and docs/results/ from the objects in --out
"""
BENCHMARK = """fedkd benchmark --suite=digits|letters|cifar10|cifar100|pacs [--tiers=NAME,...] [--settings=NAME,...]
fedkd benchmark --suite=digits --add=my_method:factory [--tune=weight:0.1,1]
fedkd benchmark --suite=digits --list
fedkd benchmark --report [--out=DIR] [--page=FILE]

Every method in every setting where it applies, for clients of different architectures, of pairs of them, or of one:
hyperparameters chosen on validation rows of a seed of their own by eight runs, then the test accuracy of the chosen
ones over six seeds. Every run is written as it ends; after an interruption it continues where it stopped.

  fedkd benchmark --suite=digits --list
  fedkd benchmark --suite=digits --profile=smoke --tiers=one --settings=few --methods=private,fedavg --out=my_results

  --profile=PROFILE  whole (the default), smoke (says nothing)
  --tiers, --settings, --methods, --seeds  only these; several processes may share the methods
  --add=MODULE:FACTORY  a method of yours in all settings, or those named, and its row beside ours; where `private` is
                     missing it is run first
  --tune=NAME:A,B    of one of its arguments two values to choose from, as most methods have, in place of two decays
  --out=DIR          where the JSON objects go, by default results/benchmark
  --list             what is done, and which methods do not apply where
  --report           write the answer, its figure, the tables and what is missing to --page, docs/benchmark.md
"""
EXPORT = """fedkd export RUN --client=3 --out=DIR [--to=flax|torch] [--licence=NAME]

Writes a client's model of a finished run in the layout of the Hugging Face hub: model.safetensors, config.json and
README.md, the card. `fedkd.load_exported(DIR)` loads it without the run or its data.

  fedkd export runs/first --client=3 --out=exported --licence=cc-by-4.0

  --client=NUMBER    which client, by default 0
  --out=DIR          a new or empty directory
  --to=torch         a state_dict for PyTorch instead, with the constants of preprocessing
  --seed=SEED        one of the run's seeds, by default the first
  --licence=NAME     of the weights, by default unknown
  --trust            the run may name code of your own, which is executed
"""
PREDICT = """fedkd predict RUN --client=3 IMAGE IMAGE ...

Prints file, class and probability of images, a line each. RUN is a finished run, or what `fedkd export` wrote.

  fedkd predict runs/first --client=3 digits/*.png

  --client=NUMBER    which client, by default 0
  --seed=SEED        one of the run's seeds, by default the first
  --resize           resize images of another size, rather than refuse them
  --trust            the run may name code of your own, which is executed
"""
BENCH = """fedkd bench --suite=cpu|gpu|peers|seeds [--json=FILE] [--cases=NAME,...] [--quick]
fedkd bench scale|stages|report ...

Measures local training through the library's own code, and PyTorch where that is installed. `scale`: a round with
many clients or devices. `stages`: where a round's time goes. `report FILE`: a finished benchmark as Markdown. Each has
its own --help.

  fedkd bench --suite=cpu --cases=lenet --quick
"""

PROGRAMS = {'compare': COMPARE, 'report': REPORT, 'watch': WATCH, 'reproduce': REPRODUCE, 'benchmark': BENCHMARK}
PROGRAMS |= {'export': EXPORT, 'predict': PREDICT}


def main(words=None):
  """Starts a command; `words` are those of the command line, without the program's name."""
  words = sys.argv[1:] if words is None else list(words)
  _make_importable()
  programs = {name: functools.partial(_program, name) for name in PROGRAMS}
  commands = {'run': run, 'sweep': sweep, **programs, 'data': data, 'bench': bench}
  if not words or _asks_for_help(words[0]):
    print(HELP, end='')
  elif words[0] == '--version':
    import fedkd

    print(f'fedkd {fedkd.__version__}')
  elif words[0] in commands:
    exits = importlib.import_module('launch.exits')
    with exits.codes():
      exits.check_once(words[1:])
      commands[words[0]](words[1:])
  else:
    _refuse(f'command {words[0]!r} is unknown; choose one of {", ".join(commands)}{_is_it(words[0], commands)}')


def run(words):
  """`fedkd run`."""
  names = configs()
  if not words or _asks_for_help(words[0]):
    width = max(map(len, names))
    print(
      RUN + ''.join(f'  {name:{width}}  {_docstring(path).splitlines()[0]}\n' for name, path in names.items()), end=''
    )
    return
  if not any(word.startswith('--config=') for word in words):
    path, string = _found(words[0])
    if any(map(_asks_for_help, words[1:])):
      about, fields = _docstring(path), _fields(f'{path}{string}')
      print(f'{about}\n\nFields, with the values of {words[0]}, and what they may be:\n\n{fields}')
      return
    words = [f'--config={path}{string}', *words[1:]]
  module = importlib.import_module('launch.main')
  _start(module, words, module.parse)


def sweep(words):
  """`fedkd sweep`."""
  if not words or any(map(_asks_for_help, words)):
    print(SWEEP, end='')
    return
  if not words[0].startswith('-'):
    words = [f'--config={words[0]}', *words[1:]]
  words = [_with_path(word) for word in words]
  module = importlib.import_module('launch.sweep')
  _start(module, words, module.parse)


def _with_path(word) -> str:
  """`--config=NAME:STRING` with the path of that config; any other word as it is."""
  if not word.startswith('--config='):
    return word
  path, string = _found(word.removeprefix('--config='))
  return f'--config={path}{string}'


def _found(config) -> tuple[pathlib.Path, str]:
  """(path, ':STRING') of 'NAME:STRING', the name of a shipped config or the path of another."""
  name, colon, string = importlib.import_module('fedkd.files').with_string(config)
  path = configs().get(name) or pathlib.Path(name)
  if not path.is_file():
    known = ', '.join(configs())
    near = _is_it(name, configs())
    _refuse(f'config {name!r} is unknown; choose one of {known}, or give the path of a file{near}')
  return path, colon + string


def data(words):
  """`fedkd data`."""
  importlib.import_module('launch.data').main(words, 'fedkd data')


def bench(words):
  """`fedkd bench`."""
  if not words or _asks_for_help(words[0]):
    print(BENCH, end='')
  else:
    importlib.import_module('launch.bench').main(words, 'fedkd bench')


def configs() -> dict:
  """{name: path} of the shipped configs."""
  return {path.stem: path for path in sorted((HOME / 'configs').glob('[a-z]*.py'))}


def _make_importable():
  """Before everything else, what is shipped; after everything else, the directory we start from (`my_rules:damped`)."""
  sys.path[:] = [str(HOME), *(entry for entry in sys.path if entry not in ('', str(HOME))), os.getcwd()]
  others = [entry for entry in os.environ.get('PYTHONPATH', '').split(os.pathsep) if entry]
  os.environ['PYTHONPATH'] = os.pathsep.join([str(HOME), *others])  # of the processes that a benchmark starts


def _program(name, words):
  """A command that a program of `launch` does alone."""
  if not words or any(map(_asks_for_help, words)):
    print(PROGRAMS[name], end='')
    return
  module = importlib.import_module(f'launch.{name}')
  if name in ('export', 'predict'):  # these read their words themselves
    module.main(words)
    return
  if hasattr(module, 'define_flags'):
    module.define_flags()
  _start(module, words, importlib.import_module('launch.exits').parse)


def _start(module, words, parse):
  from absl import app

  app.run(module.main, [f'fedkd {module.__name__.split(".")[1]}', *words], flags_parser=parse)


def _asks_for_help(word) -> bool:
  return word in ('-h', '--help', 'help')


def _docstring(path) -> str:
  """The docstring of a config, without importing it."""
  return importlib.import_module('fedkd.config.file').docstring(str(path)) or 'a config file'


def _fields(path) -> str:
  """The fields of a config file, FILE or FILE:STRING, which is imported for it."""
  return importlib.import_module('fedkd.config').described(importlib.import_module('fedkd.config.file').load(path))


def _is_it(name, known) -> str:
  return importlib.import_module('fedkd.errors').is_it(name, known)


def _refuse(text):
  importlib.import_module('launch.exits').refuse(text)


if __name__ == '__main__':
  main()
