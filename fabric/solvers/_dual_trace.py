"""`jvp`: the one-sided derivative of a JAX function, worked out equation by equation.

JAX's own rules are linear in the tangent, so at a tie of two `jnp.max` answers with the mean of
both. Here a primitive that has a kink has a rule of its own, a smooth one uses JAX's, and one of
which neither is known taints what it returns: a result that is tainted is refused by name.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from fabric.solvers import _dual_rules as rules
from fabric.solvers._only_by_rule import guarded

SMOOTH = frozenset((
    "acos", "acosh", "add", "add_any", "asin", "asinh", "atan", "atan2", "atanh",
    "broadcast_in_dim", "cbrt", "cholesky", "complex", "concatenate", "conj",
    "conv_general_dilated", "convert_element_type", "copy", "copy_p", "cos", "cosh", "cumlogsumexp",
    "cumprod", "cumsum", "device_put", "digamma", "div", "dot_general", "dynamic_slice",
    "dynamic_update_slice", "erf", "erf_inv", "erfc", "exp", "exp2", "expand_dims", "expm1", "fft",
    "gather", "imag", "integer_pow", "lgamma", "log", "log1p", "logistic", "mul", "name", "neg",
    "optimization_barrier", "pad", "pow", "real", "reduce_prod", "reduce_sum", "reduce_window_sum",
    "reshape", "rev", "rsqrt", "scatter", "scatter-add", "select_n", "sharding_constraint", "sin",
    "sinh", "slice", "split", "sqrt", "square", "squeeze", "stack", "sub", "tan", "tanh", "tile",
    "transpose", "triangular_solve", "unstack",
))  # fmt: skip
"""Primitives whose own JAX rule is the one-sided derivative wherever they are differentiable."""

NESTED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    # What they compute, not the rule they bring: that one may hide a kink.
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Primitives that call a program, and the parameter that holds it."""

SMOOTH_FUNCTIONS = {"logaddexp": jnp.logaddexp}
"""Smooth as a whole, though made of a maximum and a distance that would have to tie alike."""

HINTS = {
    "argmax": "Use `jnp.max`, or `directional.max`.",
    "argmin": "Use `jnp.min`, or `directional.min`.",
    "sort by a key": "Use `jnp.sort` of the values themselves.",
    "scan": "Write it without a loop: with `vmap`, sums, maxima and sorts over an axis.",
    "while": "Write it without a loop: with `vmap`, sums, maxima and sorts over an axis.",
    "cond": "Use `jnp.maximum`, `jnp.minimum` or `jnp.clip`.",
} | dict.fromkeys(
    ("lt", "le", "gt", "ge", "eq", "ne", "sign"),
    "Use `jnp.maximum`, `jnp.minimum`, `jnp.abs` or `jnp.clip` in place of a comparison.",
)


class Taint(NamedTuple):
    """Stands for the tangent of what depends on the arguments in a way that has no rule."""

    by: str
    hint: str


Tangent = jax.Array | Taint | None  # None: does not depend on the arguments


class Dual(NamedTuple):
    """A value and its one-sided tangent."""

    value: Any
    tangent: Tangent


def jvp(
    function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """Return `function(*primals)` and its exact one-sided derivative along `tangents`.

    Like `jax.jvp`, but right at kinks: maxima, minima, sorts, `jnp.abs`, `jnp.clip`, medians and
    segment maxima of values that tie follow the side to which the tangents point.

    Args:
        function: Of arrays or pytrees of arrays, built from JAX operations; called once.
        primals: Its arguments, floating point.
        tangents: One per argument, of the same structure and shapes.

    Returns:
        The result, and its derivative in the same structure.

    Raises:
        NotImplementedError: If a result depends on an argument through a primitive without a
            one-sided rule (a comparison, `argmax`, a rounding, a loop), or is no floating-point
            number. The primitive is named.

    Precision: Values nearer than 1e-12 (float32: 16 ulp), relative, compare as equal.
    Derivatives: Exact in one direction, positively homogeneous in `tangents`, not linear.
        `sqrt` and powers at 0 give what their slope gives there: infinity or NaN.
        `jax.lax.stop_gradient` makes a constant.
    Cost: One trace of `function` per call, and two to three times its work.

    Examples:
        >>> import jax.numpy as jnp
        >>> x, right = jnp.array([1.0, 1.0]), jnp.array([1.0, 0.0])
        >>> float(jvp(jnp.max, (x,), (right,))[1]), float(jax.jvp(jnp.max, (x,), (right,))[1])
        (1.0, 0.5)
    """
    primals, tangents = guarded(tuple(primals)), guarded(tuple(tangents))
    leaves, tree = jax.tree.flatten(primals)
    moves = tree.flatten_up_to(tangents)
    moves = [jnp.asarray(t, jnp.result_type(x)) for x, t in zip(leaves, moves, strict=True)]
    return propagate(function, primals, moves)


def propagate(
    function: Callable[..., Any], primals: tuple[Any, ...], tangents: Sequence[Tangent]
) -> tuple[Any, Any]:
    """Return value and derivative of `function`, given a tangent per leaf of `primals`."""
    program, shape = jax.make_jaxpr(function, return_shape=True)(*primals)
    inputs = [Dual(x, t) for x, t in zip(jax.tree.leaves(primals), tangents, strict=True)]
    outputs = _run(program.jaxpr, program.consts, inputs)
    tree = jax.tree.structure(shape)
    derivatives = [_derivative(output) for output in outputs]
    return tree.unflatten([output.value for output in outputs]), tree.unflatten(derivatives)


def _derivative(output: Dual) -> jax.Array:
    if isinstance(output.tangent, Taint):
        message = (
            f"`{output.tangent.by}` has no one-sided rule, and a result of the function depends "
            f"on it. {output.tangent.hint}"
        )
        raise NotImplementedError(message.rstrip())
    kind = jnp.result_type(output.value)
    if not jnp.issubdtype(kind, jnp.inexact):
        message = (
            f"A result of the function is of type {kind}, which has no derivative. Return "
            f"floating-point numbers only."
        )
        raise NotImplementedError(message)
    return jnp.zeros_like(output.value) if output.tangent is None else output.tangent


def _run(program: jex.Jaxpr, consts: Sequence[Any], inputs: Sequence[Dual]) -> list[Dual]:
    known: dict[Any, Dual] = {}
    read = lambda atom: Dual(atom.val, None) if isinstance(atom, jex.Literal) else known[atom]
    known.update(zip(program.constvars, (Dual(c, None) for c in consts), strict=True))
    known.update(zip(program.invars, inputs, strict=True))
    for equation in program.eqns:
        outputs = _apply(equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, outputs, strict=True))
    return [read(atom) for atom in program.outvars]


def _function_name(program: Any) -> str:
    info = getattr(getattr(program, "jaxpr", program), "debug_info", None)
    return str(getattr(info, "func_src_info", "")).split(" ")[0]


def _apply(equation: jex.JaxprEqn, inputs: list[Dual]) -> list[Dual]:
    name = equation.primitive.name
    if name in NESTED:
        inner = equation.params[NESTED[name]]
        whole = SMOOTH_FUNCTIONS.get(_function_name(inner))
        moving = [x for x in inputs if x.tangent is not None]
        if whole and moving and not any(isinstance(x.tangent, Taint) for x in moving):
            values = [x.value for x in inputs]
            moves = [jnp.zeros_like(x.value) if x.tangent is None else x.tangent for x in inputs]
            return [Dual(*jax.jvp(whole, values, moves))]
        if isinstance(inner, jex.ClosedJaxpr):
            return _run(inner.jaxpr, inner.consts, inputs)
        return _run(inner, (), inputs)
    if all(x.tangent is None for x in inputs) or _is_constant(equation):
        return [Dual(y, None) for y in _bind(equation, [x.value for x in inputs])]
    taint = next((x.tangent for x in inputs if isinstance(x.tangent, Taint)), None)
    if taint is None and name in RULES:
        return RULES[name](equation, inputs)
    if taint is None and name in SMOOTH:
        return _smooth(equation, inputs)
    if taint is None:
        taint = Taint(name, HINTS.get(name, ""))
    return [Dual(y, taint) for y in _bind(equation, [x.value for x in inputs])]


def _is_constant(equation: jex.JaxprEqn) -> bool:
    """Return whether the result stays the same for all small changes of the arguments."""
    name, args = equation.primitive.name, equation.invars
    # x != x is how JAX asks for NaN.
    is_nan = name in ("ne", "eq") and not isinstance(args[0], jex.Literal) and args[0] is args[1]
    return is_nan or name in ("is_finite", "stop_gradient")


def _bind(equation: jex.JaxprEqn, values: Sequence[Any]) -> list[Any]:
    result = equation.primitive.bind(*values, **equation.params)
    return list(result) if equation.primitive.multiple_results else [result]


def _smooth(equation: jex.JaxprEqn, inputs: list[Dual]) -> list[Dual]:
    moving = [i for i, x in enumerate(inputs) if x.tangent is not None]

    def of_moving(*moved: Any) -> list[Any]:
        values = [x.value for x in inputs]
        for i, x in zip(moving, moved, strict=True):
            values[i] = x
        return _bind(equation, values)

    values, tangents = jax.jvp(
        of_moving, [inputs[i].value for i in moving], [inputs[i].tangent for i in moving]
    )
    # A whole number made from a moving one jumps somewhere.
    taint = Taint(equation.primitive.name, "It makes whole numbers of values that move.")
    floating = lambda x: jnp.issubdtype(jnp.result_type(x), jnp.inexact)
    return [Dual(x, t if floating(x) else taint) for x, t in zip(values, tangents, strict=True)]


def _tangent(x: Dual) -> Any:
    return jnp.zeros_like(x.value) if x.tangent is None else x.tangent


def _pair(x: Dual) -> tuple[Any, Any]:
    return x.value, _tangent(x)


def _binary(rule: Callable[..., rules.Pair]) -> Callable[..., list[Dual]]:
    return lambda _, inputs: [Dual(*rule(*_pair(inputs[0]), *_pair(inputs[1])))]


def _reduction(rule: Callable[..., rules.Pair]) -> Callable[..., list[Dual]]:
    # `vmap` leaves NumPy whole numbers among the axes.
    axes = lambda equation: tuple(int(axis) for axis in equation.params["axes"])
    return lambda equation, inputs: [Dual(*rule(*_pair(inputs[0]), axes(equation)))]


def _running(rule: Callable[..., rules.Pair]) -> Callable[..., list[Dual]]:
    def run(equation: jex.JaxprEqn, inputs: list[Dual]) -> list[Dual]:
        axis, reverse = equation.params["axis"], equation.params["reverse"]
        both = lambda a, b: rule(*a, *b)
        pair = jax.lax.associative_scan(both, _pair(inputs[0]), reverse=reverse, axis=axis)
        return [Dual(*pair)]

    return run


def _clamp(_: jex.JaxprEqn, inputs: list[Dual]) -> list[Dual]:
    low, x, high = (_pair(x) for x in inputs)
    return [Dual(*rules.minimum(*rules.maximum(*x, *low), *high))]


def _sort(equation: jex.JaxprEqn, inputs: list[Dual]) -> list[Dual]:
    keys = equation.params["num_keys"]
    if all(x.tangent is None for x in inputs[:keys]):
        return _smooth(equation, inputs)
    values = _bind(equation, [x.value for x in inputs])
    taint = Taint("sort by a key", HINTS["sort by a key"])
    outputs = [Dual(y, taint) for y in values]
    if keys == 1:
        outputs[0] = Dual(*rules.sort(*_pair(inputs[0]), int(equation.params["dimension"])))
    return outputs


def _top_k(equation: jex.JaxprEqn, inputs: list[Dual]) -> list[Dual]:
    axis, k = int(equation.params["axis"]), equation.params["k"]
    values, index = _bind(equation, [inputs[0].value])
    tangent = jax.lax.rev(rules.sort(*_pair(inputs[0]), axis)[1], (axis,))
    tangent = jax.lax.slice_in_dim(tangent, 0, k, axis=axis)
    return [Dual(values, tangent), Dual(index, Taint("top_k", "Only its values have one."))]


def _scatter_extreme(nothing: float) -> Callable[..., list[Dual]]:
    def run(equation: jex.JaxprEqn, inputs: list[Dual]) -> list[Dual]:
        start, where, updates = inputs
        (value,) = _bind(equation, [x.value for x in inputs])
        kept = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        how = {name: equation.params[name] for name in kept}
        add = lambda u: jax.lax.scatter_add(jnp.zeros_like(value), where.value, u, **how)
        # The transpose of adding somewhere reads what is there.
        (at,) = jax.linear_transpose(add, updates.value)(value)
        tied = [
            jnp.where(rules.near(x.value, y), _tangent(x), nothing)
            for x, y in ((start, value), (updates, at))
        ]
        (tangent,) = _bind(equation, [tied[0], where.value, tied[1]])
        return [Dual(value, tangent)]

    return run


RULES: dict[str, Callable[[jex.JaxprEqn, list[Dual]], list[Dual]]] = {
    "max": _binary(rules.maximum),
    "min": _binary(rules.minimum),
    "reduce_max": _reduction(rules.max),
    "reduce_min": _reduction(rules.min),
    "cummax": _running(rules.maximum),
    "cummin": _running(rules.minimum),
    "abs": lambda _, inputs: [Dual(*rules.abs(*_pair(inputs[0])))],
    "clamp": _clamp,
    "sort": _sort,
    "top_k": _top_k,
    "scatter-max": _scatter_extreme(-jnp.inf),
    "scatter-min": _scatter_extreme(jnp.inf),
}
