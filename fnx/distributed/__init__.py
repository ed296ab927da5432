"""fnx.distributed: many devices as one job, and what a job would cost on more."""

from fnx.distributed.buckets import psum_in_buckets
from fnx.distributed.cluster import Chip, Cluster, Level, dgx_h100
from fnx.distributed.pipelining import PipelineTime, simulate_pipeline
from fnx.distributed.simulation import Simulation, simulate

__all__ = [
    "Chip",
    "Cluster",
    "Level",
    "PipelineTime",
    "Simulation",
    "dgx_h100",
    "psum_in_buckets",
    "simulate",
    "simulate_pipeline",
]
