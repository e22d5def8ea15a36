"""Values that must not be differentiated, or only by a rule further out: they fail by name.

JAX drops custom rules when it splits a `scan` for reverse mode. A second derivative would then go
through the loop that fills, and at best fail; at worst it is NaN.
"""

from typing import Any, TypeVar

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fabric._typing import AnyArray
from fabric.network import is_traced

_p = Primitive("only_by_rule")
_p.def_impl(lambda x: x)
_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(_p, lambda _, x: [x])
batching.primitive_batchers[_p] = lambda args, axes: (_p.bind(*args), axes[0])


def _refuse(primals: Any, tangents: Any) -> Any:
    message = (
        "Second derivatives of `max_min_rates` do not go through `jax.lax.scan` or `jax.lax.map`, "
        "since JAX drops the rule of the first one there. Use `jax.vmap` or a Python loop."
    )
    raise NotImplementedError(message)


ad.primitive_jvps[_p] = _refuse


def only_by_rule(value: AnyArray) -> AnyArray:
    """Return the value itself."""
    return _p.bind(value)


Tree = TypeVar("Tree")


def guarded(tree: Tree) -> Tree:
    """Return the same arrays; differentiating what is made of them is refused by name."""
    return _refuse_one_sided(tree) if is_traced(tree) else tree


@jax.custom_jvp
def _refuse_one_sided(arguments: Any) -> Any:
    return arguments


@_refuse_one_sided.defjvp
def _not_linear(primals: Any, tangents: Any) -> Any:
    message = (
        "`one_sided` and `directional.jvp` cannot be differentiated: the exact one-sided "
        "derivative is not linear in its direction. Under `jax.grad` and `jax.jvp` use "
        '`max_min_rates(..., derivative="select")` or `derivative="mean"`.'
    )
    raise NotImplementedError(message)
