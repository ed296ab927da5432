"""Programs in notebooks, and fnx.inspect."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import fnx
import fnx.numpy as fnp
from fnx import errors, lax

X = np.ones((4, 3), "f4")
VOID = {"br", "meta"}


class Page(HTMLParser):
    """Checks that tags are balanced, and collects what there is."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.titles = [], [], [], []
        self.deepest = 0
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        self.deepest = max(self.deepest, self.open.count("details"))
        self.titles += [value for name, value in attrs if name == "title"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self):
        return "".join(self.texts)


def recurrent(w, xs):
    with fnx.named_scope("cell"):
        h, _ = lax.scan(lambda h, x: (fnp.tanh(h * x + 1.5), None), w, xs)
    return lax.cond(h.sum() < 1.0, lambda h: h, lambda h: -h, h)


def test_a_program_draws_itself():
    program = fnx.make_jaxpr(recurrent)(X[0], X)
    html = program._repr_html_()
    page = Page(html)
    for word in ("inputs", "outputs", "tanh", "f32[4,3]", "1.5", "branches[0]"):
        assert word in page.text
    assert page.tags.count("details") == 3 and page.deepest == 1
    assert "program: 3 equations" in page.text
    line = "h, _ = lax.scan(lambda h, x: (fnp.tanh(h * x + 1.5), None), w, xs)"
    assert line in page.texts
    assert any("(recurrent, in cell)" in title for title in page.titles)
    # Nothing is loaded, and nothing runs.
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "http" not in html and "url(" not in html
    assert len(html) < 12_000


def test_held_programs_nest():
    outer = fnx.jit(lambda x: fnx.jit(lambda y: fnp.sin(y) * 2)(x) + 1)
    page = Page(fnx.make_jaxpr(lambda x: outer(x))(1.0)._repr_html_())
    assert page.deepest == 2 and "program: 4 equations" in page.text


def test_what_is_no_html_is_escaped():
    def compared(x):
        return x < 1 & 3

    program = fnx.make_jaxpr(compared)(3)
    page = Page(program._repr_html_())
    assert "return x < 1 & 3" in page.texts
    lambda_name = Page(fnx.make_jaxpr(fnx.jit(lambda x: x + 1))(1)._repr_html_())
    assert "name=<lambda>" in lambda_name.text
    assert Page(fnx.make_jaxpr(lambda: ())()._repr_html_()).text.split() == [
        *("inputs", "outputs")
    ]


def test_inspect_shows_all_stages():
    x = np.ones((64, 32), "f4")
    found = fnx.inspect(lambda x: fnp.exp(x @ x.T))(x)
    text = str(found)
    assert "# tests/api/test_inspection.py" in text and "plan: 2 steps" in text
    assert "kernel kernel" in text and repr(found) == text
    assert text.endswith(
        f"{found.cost()['flops']:,.0f} operations; 65,536 bytes read and written; "
        "40,960 bytes of memory, of them 16,384 for intermediate values"
    )
    assert "@run" in found.as_text("llvm")
    assert found.memory().argument_size_in_bytes == 8192
    assert found.program.output_types == (fnx.typeof(x @ x.T),)
    page = Page(found._repr_html_())
    assert page.tags.count("details") == 3 and "1×64×64×32 float32" in page.text
    assert page.tags.count("svg") == 1
    loop = fnx.inspect(lambda x: lax.while_loop(lambda c: c < 9, lambda c: c * 2, x))
    assert "1 loops counted with one round" in str(loop(1.0))


def boxes_of(svg):
    """The boxes (title, type, middle, top) and the ends of the edges of a graph."""
    root = ElementTree.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    boxes = []
    for group in root.iter(f"{space}g"):
        title, kind = [text.text for text in group.iter(f"{space}text")]
        frame = next(group.iter(f"{space}rect"))
        left, top, width = [float(frame.get(name)) for name in ("x", "y", "width")]
        assert left >= 0 and left + width <= float(root.get("width"))
        assert top >= 0 and top + 38 <= float(root.get("height"))
        boxes.append((title, kind, round(left + width / 2, 1), top, width))
    paths = [path.get("d") for path in root.iter(f"{space}path")]
    numbers = [[float(n) for n in re.findall(r"[\d.]+", path)] for path in paths]
    return boxes, [((n[0], n[1]), (n[-2], n[-1])) for n in numbers]


def test_a_program_is_drawn_as_a_graph():
    def f(x, y):
        z = fnp.sin(x) * y
        return z + fnp.cos(z), lax.scan(lambda c, r: (c * r + 2.0, None), 1.0, x)[0], 7

    svg = fnx.inspect(f)(np.ones(5, "f4"), np.ones(5, "f4")).as_svg()
    boxes, edges = boxes_of(svg)
    titles = [title for title, *_ in boxes]
    assert titles[:2] == ["a", "b"] and titles[-1].startswith("output 2 = 7")
    assert {"sin", "cos", "mul", "add"} < set(titles)
    assert "scan 1.0 (2 equations)" in titles
    # Each edge goes from the lower end of one box to the upper end of a lower one.
    tops = {(middle, top): title for title, _, middle, top, _ in boxes}
    ends = {(middle, top + 38): title for title, _, middle, top, _ in boxes}
    drawn = {(ends[source], tops[target]) for source, target in edges}
    assert all(source[1] < target[1] for source, target in edges)
    assert {
        ("a", "sin"),
        ("sin", "mul"),
        ("b", "mul"),
        ("mul", "cos"),
        ("mul", "add"),
        ("cos", "add"),
        ("add", "output 0"),
        ("a", "scan 1.0 (2 equations)"),
    } <= drawn and len(drawn) == 9
    # Boxes of a row stand beside each other.
    rows = {}
    for _, _, middle, top, width in sorted(boxes, key=lambda box: box[2]):
        assert middle - width / 2 > rows.get(top, 0)
        rows[top] = middle + width / 2
    assert "z = fnp.sin(x) * y" in svg and "script" not in svg


def test_graphs_of_no_and_of_many_equations():
    empty = fnx.inspect(lambda: ())()
    assert boxes_of(empty.as_svg()) == ([], [])

    def long(x):
        for i in range(200):
            x = fnp.sin(x) + i
        return x < 1

    found = fnx.inspect(long)(1.0)
    boxes, edges = boxes_of(found.as_svg())
    assert (len(boxes), len(edges)) == (403, 402)
    assert "<svg" not in found._repr_html_()


def test_inspect_takes_what_jit_takes():
    found = fnx.inspect(lambda x, n: x * n, static_argnums=1)(1.0, 3)
    assert "mul a 3" in found.as_text()
    jitted = fnx.jit(lambda x: x * 2)
    assert fnx.inspect(jitted)(1.0).as_text("plan") == (
        fnx.inspect(jitted.__wrapped__)(1.0).as_text("plan")
    )
    with pytest.raises(errors.OptionError, match="the function is jitted"):
        fnx.inspect(jitted, static_argnums=0)
    with pytest.raises(errors.ArgumentError, match="takes a function"):
        fnx.inspect(3)
    with pytest.raises(errors.OptionError, match="fortran"):
        fnx.inspect(jitted)(1.0).as_text("fortran")


def test_make_jaxpr_binds_axes():
    def f(x):
        return lax.psum(x, "i") + lax.axis_size("i")

    make = fnx.make_jaxpr(f, axis_env=[("i", 4)], return_shape=True)
    program, shapes = make(np.float32(1))
    assert program.eqns and shapes == fnx.ShapeDtypeStruct((), "float32")
    with pytest.raises(errors.AxisError, match="'i' is not bound"):
        fnx.make_jaxpr(f)(1.0)
    with pytest.raises(errors.ArgumentError, match=r"pairs of an axis name and a size"):
        fnx.make_jaxpr(f, axis_env=[("i", "4")])
    with pytest.raises(errors.ArgumentError, match=r"pairs of an axis name and a size"):
        fnx.make_jaxpr(f, axis_env=4)
    with pytest.raises(TypeError, match="abstracted_axes"):
        fnx.make_jaxpr(f, abstracted_axes=("n",))
