"""fnx: functional transformations of array programs, and a compiler for them.

`import fnx` gives the transformations (`grad`, `vmap`, `jit` and the rest), and with
them `fnx.numpy`, whose functions are also the operators and methods of arrays. The
other folders (`fnx.lax`, `fnx.nn`, `fnx.random`, …), and those transformations that
arrays do without, are loaded when they are first used: this is the one place that says
which. The walk through the code starts at `fnx/api`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fnx import cache, errors, numpy, tree
from fnx.api.disabling import disable_jit
from fnx.api.inspect import ShapeDtypeStruct, eval_shape, make_jaxpr, typeof
from fnx.api.jit import clear_caches, jit
from fnx.api.vmap import vmap
from fnx.config import config
from fnx.core.array import Array
from fnx.cpu.threads import num_threads, set_num_threads
from fnx.dtypes import default_dtypes, float0
from fnx.runtime.backend import offer

if TYPE_CHECKING:
    from fnx import (
        ad_checkpoint,
        checkify,
        checkpoint_policies,
        cuda,
        custom_batching,
        custom_derivatives,
        data,
        debug,
        distributed,
        dlpack,
        experimental,
        extend,
        flatten_util,
        image,
        implicit,
        lax,
        nn,
        optim,
        random,
        scipy,
        sharding,
        stages,
        testing,
        tree_util,
        typing,
    )
    from fnx.api.callbacks import effects_barrier, io_callback, pure_callback
    from fnx.api.closures import closure_convert, custom_gradient
    from fnx.api.contexts import (
        check_tracer_leaks,
        default_matmul_precision,
        empty_ref,
        enable_checks,
        enable_x64,
        ensure_compile_time_eval,
        free_ref,
        host_count,
        host_id,
        host_ids,
        live_arrays,
        no_tracing,
        numpy_dtype_promotion,
        numpy_rank_promotion,
        print_environment_info,
        process_indices,
    )
    from fnx.api.custom import custom_jvp, custom_vjp
    from fnx.api.custom_rule import custom_rule, linear_call
    from fnx.api.derivatives import jvp, linear_transpose, linearize, vjp
    from fnx.api.device import (
        Device,
        block_until_ready,
        default_backend,
        default_device,
        device_count,
        device_get,
        device_put,
        devices,
        local_device_count,
        local_devices,
        process_count,
        process_index,
    )
    from fnx.api.doctor import doctor
    from fnx.api.global_arrays import (
        make_array_from_callback,
        make_array_from_process_local_data,
        make_array_from_single_device_arrays,
    )
    from fnx.api.grad import grad, value_and_grad
    from fnx.api.inspection import inspect
    from fnx.api.jacobian import hessian, jacfwd, jacobian, jacrev
    from fnx.api.jet import jet
    from fnx.api.misses import no_recompile
    from fnx.api.passes import fwd_and_bwd, hvp
    from fnx.api.pmap import pmap
    from fnx.api.refs import Ref, freeze, new_ref
    from fnx.api.remat import checkpoint, remat
    from fnx.api.scopes import named_call, named_scope
    from fnx.api.shard_map import make_mesh, shard_map
    from fnx.api.sparse import sparse_hessian, sparse_jacobian
    from fnx.api.switches import (
        checking_leaks,
        debug_infs,
        debug_nans,
        explain_cache_misses,
        log_compiles,
    )
    from fnx.debug.keys import debug_key_reuse
    from fnx.runtime.in_parts import Shard
    from fnx.runtime.mesh import set_mesh
    from fnx.runtime.sharding import NamedSharding
    from fnx.sharding import P, reshard
    from fnx.testing.compare import check

__version__ = "0.1.0"

offer("cpu", "fnx.cpu.backend")
offer("cuda", "fnx_cuda.backend", "gpu", "fnx_cuda.finding")
offer("calls", "fnx.cpu.entry")

# Computing with arrays needs none of this, so `import fnx` does not wait for it: each
# of these modules is loaded when it, or one of the names from it, is first used.
_LAZY_MODULES = (
    "ad_checkpoint",
    "checkify",
    "checkpoint_policies",
    "cuda",
    "custom_batching",
    "custom_derivatives",
    "data",
    "debug",
    "distributed",
    "dlpack",
    "experimental",
    "extend",
    "flatten_util",
    "image",
    "implicit",
    "lax",
    "nn",
    "optim",
    "random",
    "sharding",
    "scipy",
    "stages",
    "testing",
    "tree_util",
    "typing",
)
_LAZY_NAMES = {
    "fnx.api.callbacks": "effects_barrier io_callback pure_callback",
    "fnx.api.closures": "closure_convert custom_gradient",
    "fnx.api.contexts": """check_tracer_leaks default_matmul_precision empty_ref
        enable_checks enable_x64 ensure_compile_time_eval free_ref host_count host_id
        host_ids live_arrays no_tracing numpy_dtype_promotion numpy_rank_promotion
        print_environment_info process_indices""",
    "fnx.api.custom": "custom_jvp custom_vjp",
    "fnx.api.custom_rule": "custom_rule linear_call",
    "fnx.api.derivatives": "jvp linear_transpose linearize vjp",
    "fnx.api.device": """Device block_until_ready default_backend default_device
        device_count device_get device_put devices local_device_count local_devices
        process_count process_index""",
    "fnx.api.doctor": "doctor",
    "fnx.api.global_arrays": """make_array_from_callback
        make_array_from_process_local_data make_array_from_single_device_arrays""",
    "fnx.api.grad": "grad value_and_grad",
    "fnx.api.inspection": "inspect",
    "fnx.api.jacobian": "hessian jacfwd jacobian jacrev",
    "fnx.api.jet": "jet",
    "fnx.api.misses": "no_recompile",
    "fnx.api.passes": "fwd_and_bwd hvp",
    "fnx.api.pmap": "pmap",
    "fnx.api.refs": "Ref freeze new_ref",
    "fnx.api.remat": "checkpoint remat",
    "fnx.api.scopes": "named_call named_scope",
    "fnx.api.shard_map": "make_mesh shard_map",
    "fnx.api.sparse": "sparse_hessian sparse_jacobian",
    "fnx.api.switches": """checking_leaks debug_infs debug_nans explain_cache_misses
        log_compiles""",
    "fnx.debug.keys": "debug_key_reuse",
    "fnx.runtime.in_parts": "Shard",
    "fnx.runtime.mesh": "set_mesh",
    "fnx.runtime.sharding": "NamedSharding",
    "fnx.sharding": "P reshard",
    "fnx.testing.compare": "check",
}
_MODULE_OF = {
    name: home for home, names in _LAZY_NAMES.items() for name in names.split()
}

__all__ = [
    "Array",
    "Device",
    "NamedSharding",
    "P",
    "Shard",
    "Ref",
    "ShapeDtypeStruct",
    "ad_checkpoint",
    "block_until_ready",
    "cache",
    "check",
    "check_tracer_leaks",
    "checkify",
    "checking_leaks",
    "checkpoint",
    "checkpoint_policies",
    "clear_caches",
    "closure_convert",
    "config",
    "cuda",
    "custom_batching",
    "custom_derivatives",
    "custom_gradient",
    "custom_jvp",
    "custom_rule",
    "custom_vjp",
    "data",
    "debug",
    "debug_infs",
    "debug_key_reuse",
    "debug_nans",
    "default_backend",
    "default_device",
    "default_dtypes",
    "default_matmul_precision",
    "device_count",
    "device_get",
    "device_put",
    "devices",
    "disable_jit",
    "distributed",
    "dlpack",
    "doctor",
    "effects_barrier",
    "empty_ref",
    "enable_checks",
    "enable_x64",
    "ensure_compile_time_eval",
    "errors",
    "eval_shape",
    "experimental",
    "explain_cache_misses",
    "extend",
    "flatten_util",
    "float0",
    "free_ref",
    "freeze",
    "fwd_and_bwd",
    "grad",
    "hessian",
    "host_count",
    "host_id",
    "host_ids",
    "hvp",
    "image",
    "implicit",
    "inspect",
    "io_callback",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jet",
    "jit",
    "jvp",
    "lax",
    "linear_call",
    "linear_transpose",
    "linearize",
    "live_arrays",
    "local_device_count",
    "local_devices",
    "log_compiles",
    "make_array_from_callback",
    "make_array_from_process_local_data",
    "make_array_from_single_device_arrays",
    "make_jaxpr",
    "make_mesh",
    "named_call",
    "named_scope",
    "new_ref",
    "nn",
    "no_recompile",
    "no_tracing",
    "num_threads",
    "numpy",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
    "optim",
    "pmap",
    "print_environment_info",
    "process_count",
    "process_index",
    "process_indices",
    "pure_callback",
    "random",
    "remat",
    "reshard",
    "scipy",
    "set_num_threads",
    "set_mesh",
    "shard_map",
    "sharding",
    "sparse_hessian",
    "sparse_jacobian",
    "stages",
    "testing",
    "tree",
    "tree_util",
    "typing",
    "typeof",
    "value_and_grad",
    "vjp",
    "vmap",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"fnx.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'fnx' has no attribute {name!r}")
    found = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = found  # so that the next use does not come here
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_MODULES, *_MODULE_OF})
