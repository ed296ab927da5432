"""What a plan becomes for a GPU: launches, copies, products, and what Python drives.

`lower.py` makes a `Body` of instructions from a plan, `run.py` runs it. All of it is
data that can be kept on disk: addresses are `Place`s, kernels are texts of CUDA C.
Next on the walk: `lower.py`.
"""

from __future__ import annotations

from fnx.records import record
from fnx.runtime.plan import (
    AttentionStep,
    BranchStep,
    ConvolutionStep,
    HostStep,
    LoopStep,
    MatmulStep,
    Place,
)
from fnx_cuda.cufft import Transform
from fnx_cuda.cusolver import Factoring
from fnx_cuda.eigen import General
from fnx_cuda.stacks import Stack


@record
class Launch:
    """Runs a kernel: a function of one translation unit, by so many threads.

    Its one parameter is a struct that begins with the addresses of `pointers` and goes
    on with the bytes of `numbers`. `grid` counts blocks of `block` threads; `shared` is
    dynamic shared memory in bytes. Places of the role "work" lie in memory of the
    program's own, which launches use one after the other. All addresses have to be
    multiples of `alignment`, and of the sizes of elements.
    A kernel of the user's takes the addresses and numbers one by one if it is
    `separate`, eight bytes each, and its blocks may have more axes than `block`.
    """

    text: str
    function: str
    grid: tuple[int, int, int]
    block: int
    shared: int
    pointers: tuple[Place, ...]
    numbers: bytes = b""
    alignment: int = 16
    separate: bool = False
    block_axes: tuple[int, int] = (1, 1)


@record
class Copy:
    """Copies bytes on the device."""

    out: Place
    source: Place
    nbytes: int


@record
class Host:
    """Runs a primitive's `reference` rule on the host, between copies."""

    step: HostStep


@record
class Meet:
    """Replicas exchange arrays between their devices: a collective."""

    step: HostStep


@record
class Numbered:
    """Writes the number of this replica along an axis: a launch that is given it."""

    step: HostStep
    launch: Launch


@record
class After:
    """What follows a product, by launches of our own.

    It is an epilogue of the library: then the product goes to `out` at once, and
    nowhere else. A bias is read, or the gradient of one written; `aux` is what the
    derivatives of an activation need: where GELU is of the product alone, the product.
    """

    epilogue: int
    bias: Place | None
    out: Place
    launches: tuple[Launch, ...]
    aux: Place | None = None


@record
class Product:
    """A stack of matrix products: by a library, or by launches of our own."""

    step: MatmulStep
    launches: tuple[Launch, ...]
    after: After | None = None


@record
class Convolve:
    """A convolution that a library may have, or else launches of our own.

    What copies a filter for the library is a launch too; `packed` is where that is.
    """

    step: ConvolutionStep
    launches: tuple[Launch, ...]
    packing: tuple[Launch, ...] = ()
    packed: Place | None = None


@record
class Attend:
    """An attention or its gradients that a library may have, or else a body."""

    step: AttentionStep
    body: Body


@record
class Call:
    """What a library does, on the arrays at places."""

    made: Transform | Factoring | General | Stack
    places: tuple[Place, ...]


@record
class Served:
    """A routine by a library: its calls, and launches around them.

    Without the library, `own` launches do the same, or the host where there are none.
    """

    step: HostStep
    stages: tuple[Launch | Call, ...]
    own: tuple[Launch, ...] | None


@record
class Branch:
    """Runs one of several bodies, by an index on the device."""

    step: BranchStep
    branches: tuple[Body, ...]


@record
class Loop:
    """Runs a body round after round, as long as the step says or the test allows."""

    step: LoopStep
    body: Body
    test: Body | None


Instruction = (
    Launch
    | Copy
    | Host
    | Meet
    | Numbered
    | Product
    | Convolve
    | Attend
    | Served
    | Branch
    | Loop
)


@record
class Body:
    """The instructions of a plan, in order.

    The plan's places are those of its inputs, its outputs and its arena; `work` is how
    many bytes the role "work" takes, in one region that a program has for itself and
    for all the bodies inside. `scopes` are the names around what the instructions
    compute, one for each, for people.
    """

    instructions: tuple[Instruction, ...]
    work: int
    scopes: tuple[str, ...] = ()
