"""Servers: what they keep from the clients' messages, and what they send. A server is a `types.Server`."""

from fedkd.servers.buffers import buffer_age, buffered_class_means, class_buffer, push, stored
from fedkd.servers.cached_consensus import DISCARD, STORE, cached_consensus
from fedkd.servers.class_knowledge import class_means, class_message, latest_class_knowledge
from fedkd.servers.combine import after, join
from fedkd.servers.confidence_weights import confidences, confident
from fedkd.servers.consensus import consensus, distillation_targets, places, stratified, uniform
from fedkd.servers.controls import controls
from fedkd.servers.ensemble_distillation import distilled
from fedkd.servers.features_and_logits import features_and_logits
from fedkd.servers.layer_subset import part
from fedkd.servers.means_of_others import means_of_others
from fedkd.servers.mixtures import mixtures
from fedkd.servers.peer_to_peer import pairs, router
from fedkd.servers.sharpening import era, power, sharpening
from fedkd.servers.students import student_of, students
from fedkd.servers.weights import as_rows, global_model, silent, variables_of, weights, with_uploads

__all__ = [
  'DISCARD',
  'STORE',
  'after',
  'as_rows',
  'buffer_age',
  'buffered_class_means',
  'cached_consensus',
  'class_buffer',
  'class_means',
  'class_message',
  'confidences',
  'confident',
  'consensus',
  'controls',
  'distillation_targets',
  'distilled',
  'era',
  'features_and_logits',
  'global_model',
  'join',
  'latest_class_knowledge',
  'means_of_others',
  'mixtures',
  'pairs',
  'part',
  'places',
  'power',
  'push',
  'router',
  'sharpening',
  'silent',
  'stored',
  'stratified',
  'student_of',
  'students',
  'uniform',
  'variables_of',
  'weights',
  'with_uploads',
]
