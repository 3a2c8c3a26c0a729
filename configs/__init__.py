"""Experiments, one file each. A folder `configs` of your own, where you start from, is part of this package."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
