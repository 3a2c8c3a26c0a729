"""Servers: what is kept of the clients' messages, and what is sent of it. A server is a `types.Server`."""

from fedkd.servers.class_knowledge import (
  buffer_age,
  buffered_class_means,
  class_buffer,
  class_means,
  class_message,
  latest_class_knowledge,
  push,
  stored,
)
from fedkd.servers.combine import after, join
from fedkd.servers.features_and_logits import features_and_logits
from fedkd.servers.peer_to_peer import pairs, router
from fedkd.servers.weights import as_rows, silent, weights, weights_per_group

__all__ = [
  'after',
  'as_rows',
  'buffer_age',
  'buffered_class_means',
  'class_buffer',
  'class_means',
  'class_message',
  'features_and_logits',
  'join',
  'latest_class_knowledge',
  'pairs',
  'push',
  'router',
  'silent',
  'stored',
  'weights',
  'weights_per_group',
]
