"""Every field of a config, with its default."""

from typing import Literal

from ml_collections import ConfigDict, config_dict

from fedkd.checks.ranges import Annotated, Count, Positive, Range, Seed, Share, Weight
from fedkd.config import choices
from fedkd.models.initial import Initial
from fedkd.models.layers import Lowering

RANGES = {
  'milestones': tuple[Count, ...],
  'decay': Weight,
  'rounds': Annotated[int, Range(least=1, most=10**7)],
  'early_stop.patience': Positive,
  'early_stop.min_delta': Share,
  'seeds': tuple[Seed, ...],
  'model_seed': Seed | None,
  'data.seed': Seed | None,
  'data.size': Annotated[int, Range(least=0, most=4096)],
  'data.clients': Annotated[int, Range(least=1, most=10**7)],
  'data.limit': Annotated[float, Range(above=0)],
  'data.rows': Count,
  'data.table_test': Share,
  'data.missing': Literal['refuse', 'mean', 'median'],
  'data.public_rows': Count,
  'data.validation': Share,
  'data.public_share': Share,
  'data.test_share': Share,
  'data.classes': Count,
  'data.crop': Count,
  'eval_every': Positive,
  'eval_rows': Count,
  'eval_clients': Count,
  'eval_batch': Count,
  'checkpoint_every': Count,
  'devices': Positive,
  'chunk': Count,
  'initial': Initial,
  'lowering': Lowering,
  'seed_axis': Literal['auto', 'map', 'vmap'],
}


def default() -> ConfigDict:
  """Every field with its default; `method`, `plan` and `groups` are set by the experiment's config file."""
  function = lambda name: config_dict.FieldReference(name, field_type=object)  # or by value, or module:function
  config = ConfigDict()
  config.name = 'experiment'  # of the run, in what it prints
  config.method = choices.method('private')  # one of `fedkd.methods`, or module:function
  config.optimizer = choices.optimizer('adam', learning_rate=1e-3)  # of the clients, one of optax, or module:function
  config.schedule = choices.schedule('constant')  # of the learning rate over the rounds of a phase
  config.codec_up = choices.codec_up('identity')  # what codes uploads, one of `fedkd.codecs`, in every phase
  config.codec_down = choices.codec_down('identity')  # what codes downloads, likewise
  config.milestones = ()  # rounds from which the learning rate is also `decay` times what it was before
  config.decay = 0.1  # factor of the learning rate at each of the milestones
  # Networks, ({'model': name, **fields of the model}, ...), and where an entry likes: 'clients', how many (without it,
  # its share of those that are left); 'first', the number of the first of them; 'weights', a file to start from;
  # 'learning_rate'; and 'optimizer', a block of its own.
  config.groups = ()
  config.plan = choices.plan('synchronous')  # who takes part in which round, one of `fedkd.plan`, or module:function
  config.rounds = 100  # of the last phase, or the only one
  # Phases that come first: ({'name': method, 'rounds': count, 'early_stop': {...}, **its hyperparameters}, ...)
  config.before = ()
  # Clients skip the rest of the last phase after `patience` evaluations of which none improved the metric `watch` by
  # more than `min_delta`; '' watches nothing.
  config.early_stop = ConfigDict({'watch': '', 'patience': 3, 'min_delta': 0.0})
  # 'equal': clients of one architecture start from equal weights; 'own': each from its own, drawn by its number.
  config.initial = 'equal'
  config.init_from = ''  # RUN@PHASE: warm start from the models after phase PHASE of the neighbouring run RUN
  # Fields of method, optimizer and schedule whose numbers compiled programs take as arguments, so that runs that differ
  # in them alone share a program; the last bits of their results may differ from those of other runs.
  config.traced = ()
  config.seeds = (0,)  # each with its own split, initial weights and batches
  # Of the initial weights of all seeds, unless init_from has them; None: each seed's own.
  config.model_seed = config_dict.placeholder(int)

  config.data = ConfigDict()
  # Or rotated_mnist_5k, rotated_mnist, a TFDS name, npz:FILE, table:FILE, hf:PATH, folder:DIR, domains:DIR
  config.data.name = 'mnist_5k'
  config.data.dir = ''  # where sets lie; empty: $TFDS_DATA_DIR or TFDS's own default, and $FEDKD_IMAGES for folders
  config.data.angles = (0, 20, 40, 60)  # of rotated_mnist's domains, in degrees clockwise
  config.data.limit = 2.0  # GB of examples, unpacked; more are refused
  config.data.size = 0  # side in pixels that images are resized to; 0: do not (all must then be of one size)
  config.data.clients = 10  # how many, over all groups
  config.data.label = 'label'  # the feature of a TFDS set, or the column of a table, to learn
  config.data.user = ''  # the column of a table that says who owns each row, for data.partition=by_origin; '': none
  config.data.columns = ()  # the columns of a table to learn from; (): all others
  config.data.split = ''  # the column of a table that says train or test; '': test rows are drawn
  config.data.table_test = 0.2  # share of a table's rows of each class, the same for all seeds, that are then test rows
  config.data.missing = 'refuse'  # what is done with missing values of a table; mean and median are of training rows
  config.data.keep = ()  # class names or numbers to keep; (): all
  config.data.rows = 0  # training images to use, a random choice; 0: all
  config.data.public = ''  # a second data set, public to all clients
  config.data.public_rows = 0  # images of the public set to use; 0: all
  config.data.seed = config_dict.placeholder(int)  # of the split of all seeds; None: each seed's own
  # Who owns which rows: `fedkd.config.partition(NAME, ...)` with one of `fedkd.data.splits`, or its name alone.
  config.data.partition = function('iid')
  # The file, .json or .npz, to which a run writes who owns which rows, for data.partition=stored; '{seed}' in its name
  # is each seed. '': none.
  config.data.partition_out = ''
  config.data.merge_test = False  # whether the official test rows are dealt out too, for data.test_share to cut
  config.data.protocol = function('shares')  # how rows are held out, shared and tested; or pacs_paper, or a function
  config.data.validation = 0.1  # share of each client's rows held out
  config.data.public_share = 0.0  # share that each client makes public
  config.data.test_share = 0.0  # share that is the client's own test set
  config.data.aligned = False  # whether all clients divide their rows by the same draw
  config.data.classes = 0  # outputs of every head; 0: as many as the data has
  config.data.normalise = function('auto')  # mean_image, standard, symmetric, imagenet, unit, none, or a function
  config.data.crop = 0  # pixels of padding before a random crop
  config.data.flip = False  # random horizontal flip

  config.eval_every = 10  # rounds between evaluations
  config.eval_rows = 1000  # of the test set, and held out, during the run, 0: all; the end always uses all
  config.eval_clients = 0  # fixed sample of clients to evaluate, 0: all
  config.eval_batch = 0  # images per forward pass of an evaluation; 0: 100 on a CPU, 500 elsewhere
  config.checkpoint_every = 0  # rounds between checkpoints; 0: about ten seconds, less often where saving is slow
  # Who is told of the run while it trains: tensorboard, wandb, mlflow, trackio, or module:function.
  config.tracker = function('tensorboard')
  config.lowering = 'auto'  # convolutions as XLA's own (native) or matrix products (matmul)
  config.devices = 1  # how many the clients are spread over; on a CPU as many as it has cores is worth a try
  config.client_store = ''  # a directory for clients' states; only those of participants are then in memory
  config.chunk = 0  # clients that are trained at once, by vmap; 0: the fastest in the benchmark
  config.seed_axis = 'auto'  # seeds one after the other (map) or at once (vmap)
  return config
