"""Passes over a finished graph: each removes nodes and keeps what the graph computes.

A rewrite looks at one node and those before it. It returns True if it changed something; then the maps of the graph are
made again. onnxscript's optimizer and rewriter (0.7.2) leave 143 nodes of a ViT, these passes 117: the former move no
factor into weights, do not join constants that are added one after the other, and keep products and biases separate.
"""

from collections import Counter

import numpy as np

PURE_SHAPE = ("Reshape", "Transpose")


class Surroundings:
    """Maps of a graph: `made`, the node behind each tensor, and `counts`, the number of its readers. `keep` names
    tensors that must stay; each counts as read once more.
    """

    def __init__(self, graph, keep):
        self.keep = keep
        self.made = {name: node for node in graph.nodes for name in node.outputs}
        self.counts = Counter(name for node in graph.nodes for name in node.inputs)
        self.counts.update(keep)

    def only_reader(self, name, *ops):
        """The node that makes a tensor, if it has one of these operators and the tensor no other reader; else None."""
        node = self.made.get(name)
        return node if node is not None and node.op in ops and self.counts[name] == 1 else None


def rename_tensor(graph, old, new):
    for node in graph.nodes:
        node.inputs = [new if name == old else name for name in node.inputs]


def constant_place(graph, node):
    """The index of the first constant among a node's inputs; None if there is none."""
    return next((i for i, name in enumerate(node.inputs) if name in graph.constants), None)


def merge_transposes(graph, node, around):
    """Joins two transposes in a row, and removes a transpose that changes nothing."""
    if node.op != "Transpose":
        return False
    perm = node.attributes["perm"]
    before = around.made.get(node.inputs[0])
    if before is not None and before.op == "Transpose":
        node.attributes["perm"] = tuple(before.attributes["perm"][axis] for axis in perm)
        node.inputs = list(before.inputs)
        return True
    if list(perm) == sorted(perm) and node.outputs[0] not in around.keep:
        graph.nodes.remove(node)
        rename_tensor(graph, node.outputs[0], node.inputs[0])
        return True
    return False


def find_linear(graph, name, around):
    """[(node, input)] of the constants into which a factor can move; None if it cannot."""
    places = []
    # A tensor with another reader must not change: only chains of single readers are followed.
    while node := around.only_reader(name, *PURE_SHAPE, "Add", "MatMul", "Conv"):
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


def fold_scale(graph, node, around):
    """Moves a multiplication by one number into the constants of the product and bias before it."""
    if node.op != "Mul" or node.outputs[0] in around.keep:
        return False
    constants = [graph.constants[name] for name in node.inputs if name in graph.constants]
    scale = next((x for x in constants if x.size == 1 and x.dtype.kind == "f"), None)
    source = next((n for n in node.inputs if n not in graph.constants), None)
    if scale is None or source is None or (chain := find_linear(graph, source, around)) is None:
        return False
    if scale.ndim > len(graph.shapes[source]):  # such a factor adds axes to the output
        return False
    for target, place in chain:
        scaled = graph.constants[target.inputs[place]] * scale.reshape(())  # a convolution's bias keeps its one axis
        target.inputs[place] = graph.constant(scaled.astype(scale.dtype), "scaled")
    graph.nodes.remove(node)
    rename_tensor(graph, node.outputs[0], source)
    return True


def merge_reshapes(graph, node, around):
    """Keeps only the second of two reshapes in a row."""
    before = around.made.get(node.inputs[0]) if node.op == "Reshape" else None
    if before is None or before.op != "Reshape":
        return False
    first, second = (graph.constants.get(reshape.inputs[1]) for reshape in (before, node))
    if first is None or second is None:
        return False
    shape = [first[place] if length == 0 else length for place, length in enumerate(second)]  # 0 copies a length
    if shape.count(-1) > 1:
        return False
    graph.path = node.path
    node.inputs = [before.inputs[0], graph.constant(np.array(shape, "int64"), "shape")]
    return True


def merge_constant_adds(graph, node, around):
    """Rewrites x + a + b as x + (a + b)."""
    place = constant_place(graph, node)
    if node.op != "Add" or place is None or node.outputs[0] in around.keep:
        return False
    before = around.only_reader(node.inputs[1 - place], "Add")
    inner = None if before is None else constant_place(graph, before)
    if inner is None:
        return False
    graph.path = node.path
    total = graph.constants[before.inputs[inner]] + graph.constants[node.inputs[place]]
    node.inputs = [before.inputs[1 - inner], graph.constant(total, "sum")]
    graph.nodes.remove(before)
    return True


def merge_bias(graph, node, around):
    """Joins a product with weights and the bias added to it into one Gemm."""
    place = constant_place(graph, node)
    if node.op != "Add" or place is None or graph.constants[node.inputs[place]].ndim != 1:
        return False
    product = around.only_reader(node.inputs[1 - place], "MatMul")
    if product is None or product.inputs[1] not in graph.constants:
        return False
    if len(graph.shapes.get(product.inputs[0], ())) != 2:
        return False
    node.op, node.inputs = "Gemm", [*product.inputs, node.inputs[place]]
    graph.nodes.remove(product)
    return True


def merge_padding(graph, node, around):
    """Turns zeros padded around the image into the convolution's own padding."""
    if node.op != "Conv" or "pads" not in node.attributes:
        return False
    pad = around.only_reader(node.inputs[0], "Pad")
    if pad is None or pad.attributes.get("mode") != "constant":
        return False
    pads = graph.constants.get(pad.inputs[1], np.full(8, -1))
    value = graph.constants.get(pad.inputs[2]) if len(pad.inputs) > 2 and pad.inputs[2] else 0
    outside_image = pads[[0, 1, 4, 5]]
    if len(pads) != 8 or pads.min() < 0 or outside_image.any() or value != 0:
        return False
    own = np.array(node.attributes["pads"]) + pads[[2, 3, 6, 7]]
    node.attributes["pads"] = tuple(int(n) for n in own)
    node.inputs[0] = pad.inputs[0]
    graph.nodes.remove(pad)
    return True


# In this order, factors are gone before products and biases are joined.
REWRITES = (merge_transposes, fold_scale, merge_reshapes, merge_constant_adds, merge_bias, merge_padding)


def rewrite_once(graph, keep, rewrite):
    """Applies the rewrite to the first node that it can change; returns whether there was one."""
    around = Surroundings(graph, keep)
    return any(rewrite(graph, node, around) for node in graph.nodes)


def constant_key(graph, name):
    """The key to compare constants by: the content of small ones, the name of large ones."""
    array = graph.constants.get(name)
    if array is None or array.size > 64:
        return name
    return (str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes())


def drop_repeated(graph, keep):
    """Keeps one of two nodes that compute the same from the same tensors."""
    seen, kept, renamed = {}, [], {}
    for node in graph.nodes:
        node.inputs = [renamed.get(name, name) for name in node.inputs]
        key = (node.op, *map(lambda n: constant_key(graph, n), node.inputs), str(sorted(node.attributes.items())))
        if key in seen and not keep.intersection(node.outputs):
            renamed.update(zip(node.outputs, seen[key].outputs, strict=True))
        else:
            seen.setdefault(key, node)
            kept.append(node)
    graph.nodes = kept


def drop_unused(graph, keep):
    needed, kept = set(keep), []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.inputs)
            kept.append(node)
    graph.nodes = kept[::-1]
    graph.constants = {name: array for name, array in graph.constants.items() if name in needed}


def simplify(graph, outputs):
    """Runs every pass until it changes nothing; `outputs` are the Values that must stay."""
    keep = {value.name for value in outputs}
    for rewrite in REWRITES:
        while rewrite_once(graph, keep, rewrite):
            pass
    drop_repeated(graph, keep)
    drop_unused(graph, keep)
