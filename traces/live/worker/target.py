"""The user's own code as a variant: a callable or module named on the command line, and its attention calls marked."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import inputs as tensors
from . import ranges
from .case import DTYPES, MODES, Case
from .variant import Built, Inputs, Variant

if TYPE_CHECKING:
    from collections.abc import Callable

CALL = "attn|"
"""What the name of an intercepted call's range begins with."""
_INPUT = re.compile(r"(?:(\w+)=)?(\w+)\[([\d,\s]+)\]")
_SPEC = re.compile(r"(?P<place>.+?):(?P<name>[A-Za-z_][\w.]*)")
_THREE = (("q", "k", "v"), ("query", "key", "value"), ("queries", "keys", "values"))
_CAUSAL = ("causal", "is_causal")


def load(spec: str, setup: str | None = None) -> Variant:
    """Return the user's code as a variant `target:NAME`, its attention calls intercepted while windows are taken.

    What is named may be: a function of q, k and v (also query, key, value), which gets the case's tensors, and `causal` or
    `is_causal` where it has such a parameter; a module or function of other arguments, given by `setup`; a function without
    arguments, which is the step itself or returns it.

    Args:
        spec: `pkg.mod:fn` or `path/file.py:fn`; the working directory can be imported from.
        setup: `pkg.mod:fn`, a function that returns the arguments (a tuple, a dict or one value), or the tensors themselves:
            `q=bf16[8,16,1024,64] k=...`, with or without names.

    Raises:
        ValueError: the text cannot be read.
        ImportError: nothing is there by that name.
        TypeError: what is there cannot be called so.
    """
    found = resolve(spec)
    found = found() if inspect.isclass(found) else found
    if not callable(found):
        raise TypeError(f"{spec} is {type(found).__name__}, which cannot be called")
    name = f"target:{_SPEC.fullmatch(spec)['name']}"  # type: ignore[index]  # resolve has read it
    if setup is None and (three := _takes_three(found)):
        return _of_three(name, spec, found, three)
    arguments = _arguments(setup) if setup else None
    if arguments is None and (needed := _required(found)):
        raise TypeError(f"{spec} needs {', '.join(needed)}: say with --setup or --input what they are")

    def build(case: Case, inputs: Inputs) -> Built:  # noqa: ARG001 -- its inputs are its own
        if arguments is None:
            made = found()
            return Built(_with_gradients(_marked(made if callable(made) else found)))
        given, named = arguments(case)
        return Built(_marked(functools.partial(found, *given, **named)))

    about = f"{spec} as it is; its inputs are its own, so the case's shape does not matter."
    return Variant(name, spec, "target", about, build, modes=("forward",), exact=False, timeout_s=300.0)


def resolve(spec: str) -> Any:
    """Return what `pkg.mod:fn` or `path/file.py:fn` names.

    Raises:
        ValueError: the text is neither.
        ImportError: there is no such file, module or member.
    """
    read = _SPEC.fullmatch(spec)
    if read is None:
        raise ValueError(f"a target is pkg.mod:fn or path/file.py:fn, not {spec!r}")
    found: Any = _file(Path(read["place"])) if read["place"].endswith(".py") else _module(read["place"])
    for member in read["name"].split("."):
        if not hasattr(found, member):
            raise ImportError(f"{read['place']} has no {read['name']}")
        found = getattr(found, member)
    return found


def parse_inputs(text: str) -> list[tuple[str | None, str, tuple[int, ...]]]:
    """Read tensors as people write them: name (or None), dtype and shape of each.

    Raises:
        ValueError: a part of the text is no tensor.

    >>> parse_inputs("q=bf16[8,16,1024,64] fp32[3]")
    [('q', 'bf16', (8, 16, 1024, 64)), (None, 'fp32', (3,))]
    """
    left = _INPUT.sub("", text).strip(" ,;\n")
    found = [(name or None, dtype, tuple(int(size) for size in shape.split(","))) for name, dtype, shape in _INPUT.findall(text)]
    if left or not found:
        raise ValueError(f"an input is name=dtype[sizes], such as q=bf16[8,16,1024,64]; not {left or text!r}")
    if wrong := [dtype for _, dtype, _ in found if dtype not in DTYPES]:
        raise ValueError(f"dtype is one of {' '.join(DTYPES)}, not {wrong[0]!r}")
    return found


def intercept(calls: Counter[str] | None = None) -> Any:
    """Return a context in which each scaled_dot_product_attention is a range that says what it was given and what it takes.

    Its name is `attn|SHAPE|DTYPE|CAUSAL|MASK|BACKEND`: the shape as a case has it, `causal`, `upper-left` (is_causal with
    unequal lengths: a query sees fewer keys than decoding expects) or `full`, `mask` or `no mask`. Calls inside compiled code
    and calls of other packages are not seen.

    Args:
        calls: counts the names, where given.
    """
    return _interceptor()(calls)


@functools.cache
def _interceptor() -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    attention = torch.nn.functional.scaled_dot_product_attention

    class Intercept(TorchFunctionMode):  # type: ignore[misc]  # mypy skips torch
        def __init__(self, calls: Counter[str] | None) -> None:
            super().__init__()
            self.calls = Counter() if calls is None else calls

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = kwargs or {}
            if func is not attention or torch.compiler.is_compiling():
                return func(*args, **given)
            name = describe(*args, **given)
            self.calls[name] += 1
            with torch.profiler.record_function(name):
                return func(*args, **given)

    return Intercept


def describe(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001 -- the signature of torch's function
    *,
    scale: float | None = None,  # noqa: ARG001
    enable_gqa: bool = False,
) -> str:
    """Return the name of a call's range, of the arguments of scaled_dot_product_attention; see `intercept`."""
    from .variants import choice

    backend = choice.taken(query, key, value, attn_mask, causal=is_causal, gqa=enable_gqa, dropout=dropout_p)
    upper = is_causal and query.shape[-2] != key.shape[-2]
    dtype = next((name for name in DTYPES if tensors.dtype(name) == query.dtype), str(query.dtype).partition(".")[2])
    shape = _shape(query, key, value)
    causal = "upper-left" if upper else "causal" if is_causal else "full"
    mask = "no mask" if attn_mask is None else "mask"
    return f"{CALL}{shape}|{dtype}|{causal}|{mask}|{backend or 'unknown'}"


def _shape(query: Any, key: Any, value: Any) -> str:
    if query.dim() != 4:
        return "x".join(map(str, query.shape))
    sizes = (query.shape[0], query.shape[1], key.shape[1], query.shape[2], key.shape[2], query.shape[3], value.shape[3])
    batch, *pairs = sizes
    texts = (str(one) if one == other else f"{one}/{other}" for one, other in zip(pairs[::2], pairs[1::2], strict=True))
    return ",".join([str(batch), *texts])


def _marked(step: Callable[[], Any]) -> Callable[[], Any]:
    """Return a step whose attention calls are marked while a window is taken; otherwise nothing is in its way."""

    def call() -> Any:
        if not ranges.is_taking():
            return step()
        with intercept():
            return step()

    return call


def _with_gradients(step: Callable[[], Any]) -> Callable[[], Any]:
    """Return a step as its script runs it: a forward case has gradients off, and a training step needs them."""

    def call() -> Any:
        import torch

        with torch.enable_grad():
            return step()

    return call


def _of_three(name: str, spec: str, function: Callable[..., Any], three: tuple[str, ...]) -> Variant:
    causal = next((word for word in _CAUSAL if word in _parameters(function)), None)

    def build(case: Case, inputs: Inputs) -> Built:
        given = dict(zip(three, (inputs.q, inputs.k, inputs.v), strict=True))
        call = _marked(functools.partial(function, **given, **({causal: case.causal} if causal else {})))
        return Built(call, lambda result: result[0] if isinstance(result, tuple) else result)

    def why_not(case: Case) -> str | None:
        return "a target is given no window" if case.window is not None else None

    said = f"; {causal} is given" if causal else "; what it hides is its own matter, so its output is not compared"
    about = f"{spec} on the case's q, k and v [B, H, S, D]{said}."
    return Variant(name, spec, "target", about, build, why_not=why_not, modes=MODES, exact=causal is not None, timeout_s=300.0)


def _arguments(setup: str) -> Callable[[Case], tuple[tuple[Any, ...], dict[str, Any]]]:
    if "[" in setup:
        wanted = parse_inputs(setup)
        return lambda case: _tensors(wanted, case.device)
    make = resolve(setup)
    return lambda case: _split(make(case) if _required(make) else make())


def _tensors(wanted: list[tuple[str | None, str, tuple[int, ...]]], device: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    generator = torch.Generator().manual_seed(0)
    made = [
        (name, torch.randn(shape, generator=generator).to(device=device, dtype=tensors.dtype(dtype)))
        for name, dtype, shape in wanted
    ]
    return tuple(tensor for name, tensor in made if not name), {name: tensor for name, tensor in made if name}


def _split(made: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(made, dict):
        return (), made
    return (tuple(made) if isinstance(made, (tuple, list)) else (made,)), {}


def _parameters(function: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters by name; of a torch module those of `forward`. Empty where they cannot be told."""
    try:
        return dict(inspect.signature(getattr(function, "forward", function)).parameters)
    except (TypeError, ValueError):
        return {}


def _required(function: Any) -> list[str]:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = _parameters(function).items()
    return [name for name, one in found if one.default is inspect.Parameter.empty and one.kind not in kinds]


def _takes_three(function: Any) -> tuple[str, ...] | None:
    names, needed = tuple(_parameters(function)), _required(function)
    return next((three for three in _THREE if names[:3] == three and set(needed) <= {*three, *_CAUSAL}), None)


def _module(name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _file(path: Path) -> Any:
    if not path.is_file():
        raise ImportError(f"there is no file {path}")
    name = f"kinetop_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    sys.path.insert(0, str(path.resolve().parent))  # as when a script is run
    spec.loader.exec_module(module)
    return module
