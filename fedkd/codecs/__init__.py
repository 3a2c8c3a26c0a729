"""Codecs: any method with compressed messages, `coded(method, up=quantised(bits=8))`.

A coded message holds the arrays that are sent, so that `ledger` counts their bytes as in any other message: packed
codes and two floats, or values and their positions. Only floating-point arrays are coded, row by row: a row is what one
entry of a `Masked` or `PeerMessages` selects, and any other array is one row. Rows that coding would make no shorter
are sent as they are, and labels, counts and indices always are.

SCARLET leaves out what the receiver still has from earlier rounds; that cache is a part of the method itself
(`methods.scarlet`), which may be coded as well.
"""

from fedkd.codecs.codec import Codec
from fedkd.codecs.kinds import bfloat16, float16, identity, quantised, top_k
from fedkd.codecs.messages import Coded, decoded, encoded
from fedkd.codecs.method import coded

__all__ = [
  'Codec',
  'Coded',
  'bfloat16',
  'coded',
  'decoded',
  'encoded',
  'float16',
  'identity',
  'quantised',
  'top_k',
]
CODECS = ('bfloat16', 'float16', 'identity', 'quantised', 'top_k')  # what a config may name
