"""The CUDA backend: prints Kernels as CUDA C and runs Plans through CuPy and NCCL.

Receives Plans, gives an implementation of the Protocol in `fnx/runtime/backend.py`;
imported by fnx only where a device is asked for. Next on the walk: `backend.py`.
"""
