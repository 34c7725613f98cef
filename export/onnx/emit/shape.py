"""ONNX for operations that move values without computing: reshape, transpose, slice, concatenate, pad, roll."""

import numpy as np

from keras_vit.export.onnx.graph import TO_FIRST, Value


def reshape_to(g, x, shape, merged=()):
    x = g.channels_last(x)
    if tuple(x.shape) == shape and None not in shape[1:]:
        return x
    return g.add("Reshape", [x, g.dynamic_shape(x.shape, shape, merged)], shape, x.dtype)


def reshape(g, operation, out, x):
    merged = [place for place, length in enumerate(operation.newshape) if length == -1 and out.shape[place] is None]
    return reshape_to(g, x, tuple(out.shape), merged)


def permute(g, x, perm):
    x = g.channels_last(x)
    return g.add("Transpose", [x], [x.shape[axis] for axis in perm], x.dtype, perm=tuple(perm))


def transpose(g, operation, out, x):
    rank = len(x.shape)
    perm = operation.axes or range(rank)[::-1]
    return permute(g, x, [axis % rank for axis in perm])


def swapaxes(g, operation, out, x):
    perm = list(range(len(x.shape)))
    i, j = operation.axis1, operation.axis2
    perm[i], perm[j] = perm[j], perm[i]
    return permute(g, x, perm)


def repeat_for_batch(g, constant, x):
    """A constant (1, ...) for every image of a tensor."""
    shape = g.add("Concat", [g.add("Shape", [x], (1,), "int64", end=1), np.array(constant.shape[1:])], (None,), axis=0)
    return g.add("Expand", [constant.astype(x.dtype), shape], (x.shape[0], *constant.shape[1:]), x.dtype)


def padded_with_constants(g, xs, axis, out):
    """Joins one tensor with constants that all images share, such as a class token.

    Pads with zeros and adds the constants. Repeating them would need the batch size. A position embedding added
    afterwards joins the same constant. To a tensor of unknown length they are repeated.
    """
    places = [i for i, x in enumerate(xs) if isinstance(x, Value)]
    if len(places) != 1:
        raise ValueError("constants joined with several tensors")
    (place,) = places
    x = g.channels_last(xs[place])
    if x.shape[axis] is None:
        return g.add(
            "Concat", [repeat_for_batch(g, y, x) if y is not xs[place] else x for y in xs], out.shape, axis=axis
        )
    before, after = (sum(x.shape[axis] for x in part) for part in (xs[:place], xs[place + 1 :]))
    pads = [0] * (2 * len(x.shape))
    pads[axis], pads[len(x.shape) + axis] = before, after
    y = g.add("Pad", [x, np.array(pads)], out.shape, x.dtype)
    hole = np.zeros((1, *x.shape[1:]), x.dtype)
    constant = np.concatenate([hole if i == place else x for i, x in enumerate(xs)], axis=axis)
    return g.add("Add", [y, constant.astype(x.dtype)], out.shape, x.dtype)


def concatenate(g, operation, out, xs):
    axis = operation.axis % len(out.shape)
    arrays = [x for x in xs if not isinstance(x, Value)]
    if arrays and axis and g.is_batch(out.shape[0]):
        return padded_with_constants(g, xs, axis, out)
    values = [x for x in xs if isinstance(x, Value)]
    first = len(out.shape) == 4 and len(values) == len(xs) and any(x.channels_first for x in values)
    order = g.channels_first if first else g.channels_last
    xs = [order(x) if isinstance(x, Value) else np.asarray(x, out.dtype) for x in xs]
    axis = TO_FIRST.index(axis) if first else axis
    return g.add("Concat", xs, out.shape, out.dtype, first, axis=axis)


def expand_key(key, rank):
    """Expands a key to one part per axis, besides None."""
    if any(
        part is not Ellipsis and part is not None and not isinstance(part, int | np.integer | slice) for part in key
    ):
        raise ValueError(f"indexing with {key}")
    used = sum(part is not None and part is not Ellipsis for part in key)
    fill = (slice(None),) * (rank - used)
    place = key.index(Ellipsis) if Ellipsis in key else len(key)
    return key[:place] + fill + key[place + 1 :]


def slice_bounds(part):
    """Start, stop and step for an ONNX Slice, in which only the largest number means "to the end"."""
    step = 1 if part.step is None else part.step
    furthest = np.iinfo("int64").max
    start = (0 if step > 0 else furthest) if part.start is None else part.start
    stop = (furthest if step > 0 else -furthest) if part.stop is None else part.stop
    return start, stop, step


def take_single(g, x, slices, gone):
    """Slices, then drops the axes in `gone`; one Gather for a single place of an axis, or for only its first place."""
    if len(slices) == 1 and len(gone) == 1:
        axis, index = slices[0][:2]
        shape = x.shape[:axis] + x.shape[axis + 1 :]
        return g.add("Gather", [x, np.array(index)], shape, x.dtype, axis=axis)
    if len(slices) == 1 and slices[0][1:] == (0, 1, 1) and x.shape[slices[0][0]]:
        axis = slices[0][0]
        return g.add("Gather", [x, np.array([0])], [*x.shape[:axis], 1, *x.shape[axis + 1 :]], x.dtype, axis=axis)
    if slices:
        axes, starts, stops, steps = (np.array(column) for column in zip(*slices, strict=True))
        shape = list(x.shape)
        for axis, *part in slices:
            shape[axis] = None if shape[axis] is None else len(range(shape[axis])[slice(*part)])
        x = g.add("Slice", [x, starts, stops, axes, steps], shape, x.dtype)
    if gone:
        shape = [length for axis, length in enumerate(x.shape) if axis not in gone]
        x = g.add("Squeeze", [x, np.array(gone)], shape, x.dtype)
    return x


def get_item(g, operation, out, x, key):
    """Indexing with ints, slices, None and Ellipsis: slices first, then ints drop axes, then None adds some."""
    x = g.channels_last(x)
    key = expand_key(key if isinstance(key, tuple) else (key,), len(x.shape))
    slices, gone = [], []
    for axis, part in enumerate(part for part in key if part is not None):
        if isinstance(part, int | np.integer):
            gone.append(axis)
            slices.append((axis, int(part), int(part) + 1 or np.iinfo("int64").max, 1))
        elif part != slice(None):
            slices.append((axis, *slice_bounds(part)))
    x = take_single(g, x, slices, gone)
    kept = [part for part in key if not isinstance(part, int | np.integer)]
    new = [place for place, part in enumerate(kept) if part is None]
    return g.add("Unsqueeze", [x, np.array(new)], out.shape, x.dtype) if new else x


def split(g, operation, out, x):
    x = g.channels_last(x)
    axis = operation.axis % len(x.shape)
    lengths = [y.shape[axis] for y in out]
    return g.add_many("Split", [x, np.array(lengths)], [(y.shape, x.dtype) for y in out], axis=axis)


def unstack(g, operation, out, x):
    """One Gather for each place along the axis; it also drops the axis."""
    x = g.channels_last(x)
    axis = operation.axis % len(x.shape)
    return [g.add("Gather", [x, np.array(i)], y.shape, x.dtype, axis=axis) for i, y in enumerate(out)]


def pad(g, operation, out, x, constant_values=0):
    if operation.mode not in ("constant", "reflect"):
        raise ValueError(f"{operation.mode} padding")
    widths = list(operation.pad_width)
    widths = widths * len(x.shape) if len(widths) == 1 else widths
    widths = [widths[axis] for axis in TO_FIRST] if x.channels_first else widths
    pads = np.array([before for before, _ in widths] + [after for _, after in widths])
    value = None if constant_values in (0, None) else np.array(constant_values, x.dtype)
    return g.add("Pad", [x, pads, value], out.shape, x.dtype, x.channels_first, mode=operation.mode)


def roll(g, operation, out, x):
    """Moves the end of each axis before its beginning: two slices and a concatenation per axis."""
    if operation.axis is None:
        raise ValueError("roll without an axis")
    x = g.channels_last(x)
    for shift, axis in zip(np.atleast_1d(operation.shift), np.atleast_1d(operation.axis), strict=True):
        axis = int(axis) % len(x.shape)
        n = x.shape[axis]
        cut = -int(shift) % n
        if cut:
            ends = [take_single(g, x, [(axis, *part, 1)], []) for part in ((cut, n), (0, cut))]
            x = g.add("Concat", ends, x.shape, x.dtype, axis=axis)
    return x


def patch_places(g, layer, out, x):
    """The numbers of the rows and columns of patches, from the image's size, as in `PatchPlaces`."""
    results = []
    for axis, step in enumerate(layer.step, start=1):
        size = g.add("Shape", [x], (), "int64", start=axis, end=axis + 1)
        count = g.add("Div", [size, np.array([step])], (1,), "int64")
        if not layer.drop_remainder:
            rest = g.add("Mod", [size, np.array([step])], (1,), "int64")
            count = g.add("Add", [count, g.add("Mul", [rest, np.array([2])], (1,), "int64")], (1,), "int64")
        count = g.add("Squeeze", [count], (), "int64")
        places = g.add("Range", [np.array(0), count, np.array(1)], (None,), "int64")
        results.append(g.add("Cast", [places], (None,), "int32", to="int32"))
    return results
