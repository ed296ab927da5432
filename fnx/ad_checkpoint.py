"""What belongs to `fnx.checkpoint`: names for values, policies that know them."""

from fnx import checkpoint_policies
from fnx.api.remat import checkpoint, checkpoint_name, print_saved_residuals, remat

__all__ = [
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "print_saved_residuals",
    "remat",
]
