"""Every way to spell jax.jit gives a decorated function, and only while it lasts."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jax_cmdbuf.api.every_jit import every_jit


class Decorated:
    """Stands for a decorated function."""

    def __init__(self, jitted: Any) -> None:
        self.jitted = jitted

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.jitted(*args, **kwargs)


def double(x: Any, times: int = 1) -> Any:
    return 2 * x * times


def test_every_spelling_is_decorated() -> None:
    with every_jit(Decorated):
        from jax import jit

        made = [
            jax.jit(double),
            jit(double),
            jax.jit(double, static_argnums=1),
            jax.jit(static_argnames="times")(double),
            functools.partial(jax.jit, static_argnums=1)(double),
        ]
    for each in made:
        assert isinstance(each, Decorated)
        assert each(jnp.float32(3), 1) == 6
    assert isinstance(made[3].jitted, type(jax.jit(double)))


def test_afterwards_jit_is_what_it_was() -> None:
    before = jax.jit
    with every_jit(Decorated):
        kept = jax.jit
        assert kept is not before
        assert kept.__name__ == "jit"
        assert kept.__doc__ == before.__doc__
    assert jax.jit is before
    assert not isinstance(kept(double), Decorated)
    with pytest.raises(ZeroDivisionError), every_jit(Decorated):
        1 / 0  # noqa: B018
    assert jax.jit is before


def test_a_wrapper_that_somebody_put_around_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        with every_jit(Decorated):
            ours = jax.jit

            def theirs(*args: Any, **kwargs: Any) -> Any:
                return ours(*args, **kwargs)

            patch.setattr(jax, "jit", theirs)
        assert jax.jit is theirs
        assert not isinstance(jax.jit(double), Decorated)


def test_jax_s_own_functions_are_left_alone() -> None:
    """jax.numpy and jax.random jit at import; what they jit later is theirs too."""
    seen: list[Any] = []

    def decorate(jitted: Any) -> Any:
        seen.append(jitted)
        return jitted

    with every_jit(decorate):
        jax.random.normal(jax.random.key(0), (3,))
        jnp.linalg.norm(jnp.ones((3, 3)))
        module: dict[str, Any] = {"__name__": "jax.somewhere", "jax": jax}
        exec("f = jax.jit(lambda x: x)", module)
    assert seen == []


def test_errors_are_jax_s() -> None:
    with every_jit(Decorated), pytest.raises(TypeError, match="callable"):
        jax.jit(3)
