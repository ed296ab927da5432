"""fnx.distributed: several processes, on one machine or many, as one job.

`initialize` connects the processes that `mpiexec`, Slurm or anything else has started;
how they exchange arrays is in `communicator.py`. `simulate` says what a job would cost
on more devices than there are. This is what users call; the walk starts at
`starting.py`.
"""

from fnx.distributed.buckets import psum_in_buckets
from fnx.distributed.checkpoint import latest_step, restore, save
from fnx.distributed.cluster import Chip, Cluster, Level, dgx_h100
from fnx.distributed.pipelining import PipelineTime, simulate_pipeline
from fnx.distributed.sampling import Sampler, shard_of
from fnx.distributed.simulation import Simulation, simulate
from fnx.distributed.starting import initialize, is_initialized, shutdown
from fnx.distributed.values import (
    assert_equal,
    barrier,
    broadcast_one_to_all,
    process_allgather,
    sync_global_devices,
)

__all__ = [
    "Chip",
    "Cluster",
    "Level",
    "PipelineTime",
    "Sampler",
    "Simulation",
    "assert_equal",
    "barrier",
    "broadcast_one_to_all",
    "dgx_h100",
    "initialize",
    "is_initialized",
    "latest_step",
    "process_allgather",
    "psum_in_buckets",
    "restore",
    "save",
    "shard_of",
    "shutdown",
    "simulate",
    "simulate_pipeline",
    "sync_global_devices",
]
