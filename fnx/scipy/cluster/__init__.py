"""fnx.scipy.cluster: vq. Next on the walk: `vq.py`."""

from fnx.scipy.cluster import vq

__all__ = ["vq"]
