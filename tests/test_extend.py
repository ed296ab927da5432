"""fnx.extend, by worked examples: a primitive with every rule, a transformation, and
kernels in C and NumPy; and what is said where they are used wrongly."""

import ctypes
import gc

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, extend
from fnx.testing import check_grads

# ---------------------------------------------------------------- a primitive


class RingDifference(extend.Primitive):
    """ring_difference(x): x[..., i + 1] - x[..., i], and around the end.

    Each rule is one method; none knows of another transformation.
    """

    linear = True  # so it owes a transpose
    reads = "many"  # an element of x is read for two of the output

    def infer(self, x):
        """The type of the operand, which must have an axis."""
        if not x.ndim:
            raise errors.ShapeError(f"ring_difference: {x} has no axis")
        return x

    def reference(self, x):
        return np.roll(x, -1, -1) - x

    def jvp(self, primals, tangents):
        return self(*primals), self(*tangents)

    def transpose(self, ct, x):
        return (fnp.roll(ct, 1, -1) - ct,)

    def batch(self, axis, args, mapped):
        return self(*args), mapped[0]  # the new axis comes first, ours is the last

    def element(self, k, index, x):
        *rest, i = index
        return k.sub(x((*rest, (i + 1) % x.type.shape[-1])), x(index))


_ring_difference = RingDifference("example_ring_difference")


def ring_difference(x):
    return _ring_difference(fnp.asarray(x))


X = np.float32([[0.5, 2, -1, 4, 0.25], [1, 1, 3, -2, 7]])


def expected(x):
    return np.concatenate([np.diff(x), x[..., :1] - x[..., -1:]], -1)


def test_a_primitive_runs_eagerly_and_compiled():
    np.testing.assert_array_equal(ring_difference(X), expected(X))
    np.testing.assert_array_equal(fnx.jit(ring_difference)(X), expected(X))


def test_a_primitive_fuses_with_what_is_around_it():
    f = fnx.jit(lambda x: fnp.exp(ring_difference(x * 2)) + 1)
    np.testing.assert_allclose(f(X), np.exp(expected(2 * X)) + 1, 1e-6)
    assert f.lower(X).as_text("plan").startswith("plan: 1 steps")


def test_a_primitive_under_every_transformation():
    column = X.T
    along = fnx.vmap(ring_difference, in_axes=1, out_axes=1)
    np.testing.assert_array_equal(along(column), expected(X).T)

    def energy(x):
        return (ring_difference(x) ** 2).sum()

    # the gradient is -2 times the second difference around the ring
    second = np.roll(X, -1, -1) - 2 * X + np.roll(X, 1, -1)
    for grad in (fnx.grad(energy), fnx.jit(fnx.grad(energy))):
        np.testing.assert_allclose(grad(X), -2 * second, 1e-5)
    check_grads(energy, (X.astype(float),), order=2)
    matrix = fnx.hessian(energy)(X[0].astype(float))
    ring = 4 * np.eye(5) - 2 * np.roll(np.eye(5), 1, 1) - 2 * np.roll(np.eye(5), -1, 1)
    np.testing.assert_allclose(matrix, ring)

    def diffused(x, _):
        return x + 0.1 * fnx.grad(energy)(x), None

    walked = fnx.jit(lambda x: fnx.lax.scan(diffused, x, length=3)[0])(X)
    by_hand = X
    for _ in range(3):
        around = np.roll(by_hand, -1, -1) - 2 * by_hand + np.roll(by_hand, 1, -1)
        by_hand = by_hand - 0.2 * around
    np.testing.assert_allclose(walked, by_hand, 1e-5)


def test_a_primitive_says_what_is_wrong_and_what_is_missing():
    with pytest.raises(errors.ShapeError, match=r"f32\[\]\* has no axis"):
        ring_difference(1.0)

    class Opaque(extend.Primitive):
        def infer(self, x):
            return x

        def reference(self, x):
            return x + 1

    opaque = Opaque("example_opaque")
    assert fnx.jit(lambda x: opaque(x) * 2)(fnp.arange(3)).tolist() == [2, 4, 6]
    with pytest.raises(extend.MissingRule, match=r"example_opaque.*jvp.*test_extend"):
        fnx.grad(opaque)(fnp.float32(1))


# ---------------------------------------------------------------- a transformation


def in_bfloat16(f):
    """`f` with every matrix product computed of operands rounded to bfloat16."""
    product = extend.primitive("dot_general")

    def rule(eqn, inputs):
        if eqn.primitive is product:
            rounded = [x.astype("bfloat16").astype(x.dtype) for x in inputs]
            return product(*rounded, **eqn.params)

    return extend.rewritten(f, rule)


def layers(w, x):
    def layer(x, w):
        x = fnx.jit(lambda x: fnp.tanh(x @ w))(x)
        return fnx.lax.cond(x.sum() > 1e6, lambda x: x, lambda x: x @ w, x), None

    return fnx.lax.scan(layer, x, w)[0]


def rounded(x):
    return np.asarray(fnp.asarray(x).astype("bfloat16").astype("float32"))


def test_a_transformation_reaches_into_loops_branches_and_jit():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 4, 4)).astype("f") / 2
    x = rng.standard_normal((2, 4)).astype("f")
    by_hand = x
    for member in w:
        by_hand = np.tanh(rounded(by_hand) @ rounded(member))
        by_hand = rounded(by_hand) @ rounded(member)
    coarse = in_bfloat16(layers)
    for f in (coarse, fnx.jit(coarse), in_bfloat16(fnx.jit(layers))):
        np.testing.assert_allclose(f(w, x), by_hand, 1e-5, 1e-6)
    assert np.abs(np.asarray(layers(w, x)) - by_hand).max() > 1e-4
    # its result is fnx code, and transforms like any other
    gradient = fnx.grad(lambda w: coarse(w, x).sum())(w)
    assert gradient.shape == w.shape
    many = fnx.vmap(lambda x: coarse(w, x[None])[0])(x)
    np.testing.assert_allclose(many, by_hand, 1e-5, 1e-6)
    # and the other way round: what the derivative computes is rounded too
    inner = in_bfloat16(fnx.grad(lambda w: layers(w, x).sum()))(w)
    assert np.abs(np.asarray(inner - gradient)).max() > 0


def operations(f, *args):
    """How many operations a call of `f` runs; loops count with their rounds."""

    def count(program):
        total = 0
        for eqn in program.eqns:
            shape = eqn.params.get("shape")
            rounds = shape.length if eqn.primitive.name == "scan" else 1
            held = [p for p in eqn.params.values() if isinstance(p, extend.Program)]
            total += rounds * sum(map(count, held)) if held else 1
        return total

    return count(extend.traced(f, *args).program)


def test_what_a_program_is_made_of():
    def f(x, n):
        def body(x, _):
            return fnx.jit(lambda x: fnp.sin(x) * 2 + x)(x), None

        return {"y": fnx.lax.scan(body, -x, length=n)[0]}

    found = extend.traced(lambda x: f(x, 5), X)
    assert operations(lambda x: f(x, 5), X) == 1 + 5 * 3
    assert list(found.rebuild(extend.evaluate(found.program, found.arrays))) == ["y"]


def test_a_rule_that_gives_something_else():
    sine = extend.primitive("sin")

    def halves(eqn, inputs):
        if eqn.primitive is sine:
            return inputs[0].astype("float16")

    with pytest.raises(errors.ShapeError) as caught:
        extend.rewritten(fnp.sin, halves)(fnp.ones(3))
    assert str(caught.value) == (
        "extend.rewritten: halves for sin: it gave f16[3]: the operation gives f32[3]."
        "\n  Fix: convert what the rule returns, or return None."
    )


# ---------------------------------------------------------------- kernels

FLOATS = ctypes.POINTER(ctypes.c_float)
SIZE = ctypes.c_int64

# void axpy(const float *a, const float *x, const float *y, float *out, int64_t n, ...)
AXPY = """
define void @axpy(ptr %a, ptr %x, ptr %y, ptr %out, i64 %n, i64 %m) {
entry:
  %factor = load float, ptr %a
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %xp = getelementptr float, ptr %x, i64 %i
  %yp = getelementptr float, ptr %y, i64 %i
  %op = getelementptr float, ptr %out, i64 %i
  %xi = load float, ptr %xp
  %yi = load float, ptr %yp
  %ax = fmul float %factor, %xi
  %sum = fadd float %ax, %yi
  store float %sum, ptr %op
  %next = add i64 %i, 1
  br label %loop
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def axpy():
    """a x + y for float32 vectors: machine code, as a C compiler would have made it."""
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(AXPY), machine)
    engine.finalize_object()
    form = ctypes.CFUNCTYPE(None, FLOATS, FLOATS, FLOATS, FLOATS, SIZE, SIZE)
    code = form(engine.get_function_address("axpy"))

    def out(a, x, y):
        if x.ndim != 1 or x.shape != y.shape or a.ndim:
            raise ValueError(f"axpy takes a scalar and two vectors, got {a}, {x}, {y}")
        return y

    kernel = extend.kernel(
        out,
        cpu=code,
        name="axpy",
        jvp=lambda p, t: (kernel(*p), p[0] * t[1] + t[0] * p[1] + t[2]),
        vmap=lambda size, mapped, a, x, y: (
            # members of a matrix are rows, and the kernel takes one vector
            (a[:, None] * x + y, True)
            if mapped[0]
            else (kernel(a, x.ravel(), y.ravel()).reshape(x.shape), True)
        ),
    )
    yield kernel
    del engine


def test_a_kernel_in_c(axpy):
    a, x, y = np.float32(3), X[0], X[1]
    expected = 3 * x + y
    np.testing.assert_array_equal(axpy(a, x, y), expected)
    f = fnx.jit(lambda a, x, y: axpy(a, x * 2, y) + 1)
    np.testing.assert_array_equal(f(a, x, y), 6 * x + y + 1)
    assert "foreign axpy(" in f.lower(a, x, y).as_text("plan")
    gc.collect()  # the code lives as long as the kernel
    np.testing.assert_array_equal(f(a, x, y), 6 * x + y + 1)


def test_a_kernel_in_c_is_transformed_by_its_rules(axpy):
    a, x, y = np.float32(3), X[0], X[1]

    def loss(a, x, y):
        return (axpy(a, x, y) ** 2).sum()

    out = 3 * x + y
    expected = (2 * (x * out).sum(), 6 * out, 2 * out)
    for grad in (fnx.grad(loss, (0, 1, 2)), fnx.jit(fnx.grad(loss, (0, 1, 2)))):
        for found, wanted in zip(grad(a, x, y), expected, strict=True):
            np.testing.assert_allclose(found, wanted, 1e-6)
    hessian = fnx.jit(fnx.hessian(loss, 1))(a, x, y)
    np.testing.assert_allclose(hessian, 18 * np.eye(5), 1e-6)
    rows = fnx.jit(fnx.vmap(axpy, in_axes=(None, 0, 0)))(a, X, 2 * X)
    np.testing.assert_array_equal(rows, 5 * X)

    def walk(x, _):
        return axpy(np.float32(0.5), x, x), x

    end, rows = fnx.jit(lambda x: fnx.lax.scan(walk, x, length=4))(x)
    np.testing.assert_array_equal(end, x * 1.5**4)
    assert rows.shape == (4, 5)


def test_a_kernel_in_numpy():
    calls = []

    def sort_rows(tree):
        calls.append(tree["x"].shape)
        assert not tree["x"].flags.writeable
        order = np.argsort(tree["x"], axis=-1)
        return np.take_along_axis(tree["x"], order, -1), order.astype(np.int32)

    def out(tree):
        x = tree["x"]
        return x, fnx.ShapeDtypeStruct(x.shape, np.int32)

    def forward(tree):
        values, order = sort(tree)
        return (values, order), order

    def backward(order, cts):
        return ({"x": fnp.zeros(order.shape, "f").at[order].set(cts[0])},)

    sort = extend.kernel(out, cpu=sort_rows, vjp=(forward, backward))
    values, order = fnx.jit(sort)({"x": X[0]})
    np.testing.assert_array_equal(values, np.sort(X[0]))
    np.testing.assert_array_equal(order, np.argsort(X[0]))
    weights = np.arange(5.0, dtype="f")
    gradient = fnx.jit(fnx.grad(lambda x: (sort({"x": x})[0] * weights).sum()))(X[0])
    np.testing.assert_array_equal(gradient, np.argsort(np.argsort(X[0])))

    # without a vmap rule one member after the other, compiled or not
    calls.clear()
    many = fnx.jit(fnx.vmap(lambda x: sort({"x": x})[0]))(X)
    np.testing.assert_array_equal(many, np.sort(X))
    assert calls == [(5,), (5,)]
    slopes = fnx.vmap(fnx.grad(lambda x: (sort({"x": x})[0] * weights).sum()))(X)
    assert slopes.shape == X.shape


def test_kernels_of_other_dtypes():
    def conjugate(x, y, n):
        for i in range(2 * n):
            y[i] = -x[i] if i % 2 else x[i]

    code = ctypes.CFUNCTYPE(None, FLOATS, FLOATS, SIZE)(conjugate)
    kernel = extend.kernel(lambda x: x, cpu=code, name="conjugate")
    z = np.complex64([1 + 2j, -3j, 4])
    np.testing.assert_array_equal(fnx.jit(kernel)(z), z.conj())

    shorts = ctypes.POINTER(ctypes.c_uint16)

    def negated(x, y):
        y[0] = x[0] ^ 0x8000

    half = extend.kernel(
        lambda x: x, cpu=ctypes.CFUNCTYPE(None, shorts, shorts)(negated), name="negated"
    )
    assert fnx.jit(half)(fnp.asarray(1.5, "bfloat16")) == -1.5
    assert fnx.jit(lambda: half(fnp.asarray(1.5, "float16")))() == -1.5


def test_a_kernel_for_gpus_waits_for_one():
    source = """
    extern "C" __global__ void relu(const float *x, float *y, long long n) {
        long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
        if (i < n) y[i] = fmaxf(x[i], 0.0f);
    }"""
    cuda = extend.Cuda(source, "relu", grid=lambda x: -(-x.size // 256))
    relu = extend.kernel(lambda x: x, cuda=cuda)
    both = extend.kernel(lambda x: x, cuda=cuda, cpu=lambda x: np.maximum(x, 0))
    (eqn,) = fnx.make_jaxpr(relu)(fnp.zeros(1000)).eqns
    launch = eqn.params["launch"]
    assert (launch.grid, launch.block) == ((4, 1, 1), (256, 1, 1))
    assert eqn.params["code"].cuda is cuda
    np.testing.assert_array_equal(fnx.jit(both)(X), np.maximum(X, 0))
    for run in (relu, fnx.jit(relu)):
        with pytest.raises(errors.ArgumentError) as caught:
            run(X)
        assert str(caught.value) == (
            "kernel relu has no form for the processor that is to run it: only cuda= "
            "was given.\n  Fix: pass cpu= to fnx.extend.kernel, too."
        )


def takes_float(x, y):
    y[0] = x[0]


NARROW = ctypes.CFUNCTYPE(None, FLOATS, FLOATS)(takes_float)


def itself(x):
    """A kernel whose tangent is one of its own results: forward mode alone."""
    kernel = extend.kernel(
        lambda x: x,
        cpu=lambda x: 2 * x,
        name="twice",
        jvp=lambda primals, tangents: (kernel(*primals), kernel(*tangents)),
    )
    return kernel(x).sum()


MISTAKES = {
    "a cotangent is asked for": lambda: fnx.grad(itself)(X),
    "give cpu=, cuda= or both": lambda: extend.kernel(lambda x: x),
    "cuda must be a Cuda, got a str": lambda: extend.kernel(lambda x: x, cuda="f"),
    "the C function has no argtypes": lambda: extend.kernel(
        lambda x: x, cpu=ctypes.CDLL(None).abs
    ),
    "argument 0 of the C function is a LP_c_float, and the array is f64": lambda: (
        extend.kernel(lambda x: x, cpu=NARROW)(np.float64(1))
    ),
    "takes 2 arguments; this call has 2 arrays and 1 sizes": lambda: extend.kernel(
        lambda x: x, cpu=NARROW
    )(X[0]),
    "the result is of dtype float64: f32[5] was declared": lambda: extend.kernel(
        lambda x: fnx.ShapeDtypeStruct((5,), "f"), cpu=lambda x: np.zeros(5)
    )(X[0]),
    "the structure of what out gives": lambda: extend.kernel(
        lambda x: (x, x), cpu=lambda x: x
    )(X[0]),
    "its derivative is asked for": lambda: fnx.grad(
        lambda x: extend.kernel(lambda x: x, cpu=np.sin)(x).sum()
    )(X),
    "grid=0": lambda: extend.kernel(lambda x: x, cuda=extend.Cuda("", "f", 0))(X),
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_with_kernels(text):
    with pytest.raises(errors.FnxError) as caught:
        MISTAKES[text]()
    assert text in str(caught.value)
