"""fnx.distributed: several processes, on one machine or many, as one job.

`initialize` connects the processes that `mpiexec`, Slurm or anything else has started;
how they exchange arrays is in `communicator.py`. `simulate` says what a job would cost
on more devices than there are. This is what users call; the walk starts at
`starting.py`.
"""

from fnx.distributed.buckets import psum_in_buckets
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
    "Simulation",
    "dgx_h100",
    "initialize",
    "is_initialized",
    "psum_in_buckets",
    "shutdown",
    "simulate",
    "simulate_pipeline",
    "Sampler",
    "assert_equal",
    "barrier",
    "broadcast_one_to_all",
    "process_allgather",
    "shard_of",
    "sync_global_devices",
]
