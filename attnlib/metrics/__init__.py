"""What can be measured of attention: relations, and metrics on them, one small file a quantity.

Whoever imports anything from here finds the registry complete, and closed.
"""

from attnlib.metrics import distance, divergence, entropy, mass, sieves
from attnlib.metrics.registry import METRICS

__all__ = ["METRICS", "distance", "divergence", "entropy", "mass", "sieves"]

METRICS.frozen = True
