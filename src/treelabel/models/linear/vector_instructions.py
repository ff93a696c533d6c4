"""The vector instructions of `vector_blocks`, for LLVM: numba puts them into the loops that it compiles."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# The numbers of a vector, as many as outputs of a block.
LANES = 16

_for_range: Callable[..., Any] = cgutils.for_range_slice
_alloca: Callable[..., Any] = cgutils.alloca_once
_insert_function: Callable[..., Any] = cgutils.get_or_insert_function
_LONG, _INT, _BYTES = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
_VECTOR = ir.VectorType(ir.FloatType(), LANES)


def _fill(builder: Any, x: Any) -> Any:
    """Fill a vector with one number."""
    unset = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(unset, x, ir.Constant(_INT, 0))
    return builder.shuffle_vector(first, unset, ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES))


def _vector_at(builder: Any, start: Any, row: Any) -> Any:
    """Return a pointer to the weights of a feature."""
    position = builder.gep(start, [builder.mul(row, ir.Constant(_LONG, LANES))])
    return builder.bitcast(position, _VECTOR.as_pointer())


def _times_plus(builder: Any, x: Any, vector: Any, other: Any) -> Any:
    """Compute x * vector + other."""
    return builder.fadd(other, builder.fmul(_fill(builder, x), vector, flags=("fast",)), flags=("fast",))


def _arrays(context: Any, builder: Any, signature: Any, values: Any) -> list[Any]:
    """Return pointers to the data of (idx, val, weights, vector), and the two ends of the loop."""
    idx, val, first, last, weights, vector = (
        context.make_array(kind)(context, builder, value).data if isinstance(kind, types.Array) else value
        for kind, value in zip(signature.args, values, strict=True)
    )
    return [idx, val, weights, builder.bitcast(vector, _VECTOR.as_pointer()), first, last]


def _entry(builder: Any, idx: Any, val: Any, index: Any) -> tuple[Any, Any]:
    """Load a feature of a document, and its value."""
    return builder.zext(builder.load(builder.gep(idx, [index])), _LONG), builder.load(builder.gep(val, [index]))


def _add_products(_: Any, idx: Any, val: Any, first: Any, last: Any, weights: Any, products: Any) -> Any:
    """products += sum over i in first..last of val[i] x weights[idx[i]]; idx int32, the others float32."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        idx, val, weights, products, first, last = _arrays(context, builder, signature, values)
        total = _alloca(builder, _VECTOR)
        builder.store(builder.load(products, align=4), total)
        with _for_range(builder, first, last, ir.Constant(_LONG, 1)) as (index, _):
            feature, x = _entry(builder, idx, val, index)
            line = builder.load(_vector_at(builder, weights, feature), align=4)
            builder.store(_times_plus(builder, x, line, builder.load(total)), total)
        builder.store(builder.load(total), products, align=4)
        return context.get_dummy_value()

    return types.void(idx, val, types.int64, types.int64, weights, products), generate


def _add_multiples(_: Any, idx: Any, val: Any, first: Any, last: Any, weights: Any, change: Any) -> Any:
    """weights[idx[i]] += val[i] x change for i in first..last."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        idx, val, weights, change, first, last = _arrays(context, builder, signature, values)
        vector = builder.load(change, align=4)
        with _for_range(builder, first, last, ir.Constant(_LONG, 1)) as (index, _):
            feature, x = _entry(builder, idx, val, index)
            position = _vector_at(builder, weights, feature)
            builder.store(_times_plus(builder, x, vector, builder.load(position, align=4)), position, align=4)
        return context.get_dummy_value()

    return types.void(idx, val, types.int64, types.int64, weights, change), generate


def _ask_for(builder: Any, position: Any) -> None:
    """Bring the cache line of a pointer into the cache, to be read there again and again."""
    kind = ir.FunctionType(ir.VoidType(), [_BYTES, _INT, _INT, _INT])
    call = _insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    # To be read, to be kept in all caches, and data.
    builder.call(call, [builder.bitcast(position, _BYTES), *(ir.Constant(_INT, number) for number in (0, 3, 1))])


def _prefetch(_: Any, values: Any, first: Any, last: Any) -> Any:
    """Ask for the cache lines of the numbers first..last of an array, of 4 bytes each, as if it had one axis."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        with _for_range(builder, values[1], values[2], ir.Constant(_LONG, LANES)) as (index, _):
            _ask_for(builder, builder.gep(data, [index]))
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64), generate


def _prefetch_weights(_: Any, idx: Any, first: Any, last: Any, weights: Any) -> Any:
    """Ask for weights[idx[i]] for i in first..last."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        idx, weights = (
            context.make_array(signature.args[which])(context, builder, values[which]).data for which in (0, 3)
        )
        with _for_range(builder, values[1], values[2], ir.Constant(_LONG, 1)) as (index, _):
            feature = builder.zext(builder.load(builder.gep(idx, [index])), _LONG)
            _ask_for(builder, _vector_at(builder, weights, feature))
        return context.get_dummy_value()

    return types.void(idx, types.int64, types.int64, weights), generate


INSTRUCTIONS = {
    "prefetch": intrinsic(_prefetch),
    "prefetch_weights": intrinsic(_prefetch_weights),
    "add_products": intrinsic(_add_products),
    "add_multiples": intrinsic(_add_multiples),
}
