"""Every variant there is: the built-in ones, the user's plug-ins and the choice among them."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from . import failure, probes
from .variant import Variant
from .variants import decoding, dense, flash_attn, flash_impl, flex, grouped, layouts, linear, mha, packages, scaled, sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .case import Case

GROUP = "kinetop.variants"
"""Entry point group of plug-ins: functions (or lists) that give `Variant`s."""
_MODULES = (dense, scaled, flex, grouped, sparse, linear, decoding, layouts, mha, flash_attn, flash_impl, packages)


def built_in() -> dict[str, Variant]:
    """Return the variants of kinetop by name, in the order of a table."""
    return {variant.name: variant for module in _MODULES for variant in module.VARIANTS}


def all_variants(plugins: Sequence[str] = ()) -> dict[str, Variant]:
    """Return every variant by name: built-in, of installed plug-ins, of the modules named.

    A plug-in that cannot be loaded stands in the table as one variant `plugin:NAME` that says why; it stops nothing.

    Args:
        plugins: modules `pkg.mod` (their `variants`) or `pkg.mod:name`, a function or a list.
    """
    found = built_in()
    for name, load in [*_installed(), *((name, _loader(name)) for name in plugins)]:
        try:
            _add(found, _variants(load()))
        except (Exception, SystemExit) as error:  # a plug-in may do anything
            found[f"plugin:{name}"] = _broken(name, error)
    return found


def select(text: str, variants: Iterable[str]) -> list[str]:
    """Return the names that a list such as `eager,sdpa:*` asks for, in its order, each once.

    Args:
        text: names or patterns (`*`, `?`, `[...]`), separated by commas.
        variants: the names there are.

    Raises:
        ValueError: a name or pattern that fits nothing.

    >>> select("eager,sdpa:*", ["eager", "sdpa:math", "sdpa:flash", "linear"])
    ['eager', 'sdpa:math', 'sdpa:flash']
    """
    known = list(variants)
    chosen: dict[str, None] = {}
    for asked in filter(None, (part.strip() for part in text.split(","))):
        fits = [asked] if asked in known else fnmatch.filter(known, asked)
        if not fits:
            near = difflib.get_close_matches(asked, known, 3)
            raise ValueError(f"there is no variant {asked!r}" + (f"; near it: {', '.join(near)}" if near else ""))
        chosen.update(dict.fromkeys(fits))
    return list(chosen)


def refusal(variant: Variant, case: Case) -> str | None:
    """Return why a variant cannot run a case here, in a short sentence; None when it can."""
    if why := variant.missing():
        return why
    if case.mode not in variant.modes:
        return f"it has no {case.mode}"
    return probes.device_why_not(case) or variant.why_not(case)


def _installed() -> Iterable[tuple[str, Callable[[], Any]]]:
    return [(entry.name, entry.load) for entry in importlib.metadata.entry_points(group=GROUP)]


def _loader(name: str) -> Callable[[], Any]:
    module, _, member = name.partition(":")
    return lambda: getattr(importlib.import_module(module), member or "variants")


def _variants(found: Any) -> list[Variant]:
    made = list(found() if callable(found) else found)
    if wrong := [type(item).__name__ for item in made if not isinstance(item, Variant)]:
        raise TypeError(f"it gives {wrong[0]}, not kinetop.traces.live.worker.variant.Variant")
    return made


def _add(found: dict[str, Variant], new: list[Variant]) -> None:
    if taken := [variant.name for variant in new if variant.name in found]:
        raise ValueError(f"the name {taken[0]!r} is taken")
    found.update((variant.name, variant) for variant in new)


def _broken(name: str, error: BaseException) -> Variant:
    why = f"the plug-in cannot be loaded: {failure.sentence(error)}"

    def build(*_: Any) -> Any:
        raise RuntimeError(why)

    return Variant(
        name=f"plugin:{name}",
        title=name,
        group="plug-in",
        about="A plug-in that cannot be loaded.",
        build=build,
        missing=lambda: why,
    )
