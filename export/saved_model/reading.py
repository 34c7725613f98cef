"""SavedModels from elsewhere, without Keras; see `formats`.

TensorFlow has operations that read and write any file: a SavedModel with one of them is not opened.
"""

from pathlib import Path

import numpy as np

from keras_vit.export.formats import refuse

# The operations in SavedModels of this package's models and of keras.applications (measured), and similar ones.
COMPUTING = frozenset(
    """
    Abs Acos Acosh Add AddN AddV2 All Any ArgMax ArgMin Asin Asinh Assert Atan Atan2 Atanh AvgPool AvgPool3D BatchMatMul
    BatchMatMulV2 BatchMatMulV3 BiasAdd Bitcast BitwiseAnd BitwiseOr BitwiseXor BroadcastArgs BroadcastTo Bucketize Case
    Cast Ceil ClipByValue Complex Concat ConcatV2 Const Conv2D Conv2DBackpropInput Conv3D Conv3DBackpropInputV2 Cos Cosh
    Cumprod Cumsum DecodeJpeg DecodePaddedRaw DecodePng DecodeRaw DepthToSpace DepthwiseConv2dNative Div DivNoNan Einsum
    Elu EnsureShape Equal Erf Erfc Erfinv Exp ExpandDims Expm1 ExtractImagePatches ExtractJpegShape Fill Floor FloorDiv
    FloorMod FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3 FusedBatchNormV2
    FusedBatchNormV3 Gather GatherNd GatherV2 Greater GreaterEqual IRFFT Identity IdentityN If Imag
    ImageProjectiveTransformV3 InTopKV2 Inv InvertPermutation IsFinite IsInf IsNan L2Loss LRN LeakyRelu Less LessEqual
    LinSpace Log Log1p LogSoftmax LogicalAnd LogicalNot LogicalOr MatMul MatrixBandPart MatrixDeterminant
    MatrixDiagPartV3 MatrixDiagV3 MatrixInverse MatrixSetDiagV3 Max MaxPool MaxPool3D MaxPoolV2 Maximum Mean Min Minimum
    MirrorPad Mod Mul MulNoNan Neg NoOp NotEqual OneHot OnesLike Pack Pad PadV2 PartitionedCall Placeholder
    PlaceholderWithDefault Pow PreventGradient Prod RFFT Range Rank ReadVariableOp Real RealDiv Reciprocal Relu Relu6
    Reshape ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor Reverse ReverseV2 Rint Roll Round Rsqrt
    ScaleAndTranslate ScatterNd Select SelectV2 Selu Shape ShapeN Sigmoid Sign Sin Sinh Size Slice Snapshot Softmax
    Softplus Softsign SpaceToDepth Split SplitV Sqrt Square SquaredDifference Squeeze StatefulPartitionedCall
    StatelessCase StatelessIf StatelessWhile StaticRegexReplace StopGradient StridedSlice StringLength StringSplitV2 Sub
    Substr Sum Svd Tan Tanh TensorListConcatV2 TensorListElementShape TensorListFromTensor TensorListGather
    TensorListGetItem TensorListLength TensorListReserve TensorListSetItem TensorListSplit TensorListStack
    TensorScatterUpdate Tile TopK TopKV2 Transpose TruncateDiv TruncateMod Unpack VarHandleOp Where While Xdivy
    XlaDynamicUpdateSlice Xlog1py Xlogy ZerosLike
    """.split()
)
# Operations in the functions that save and restore the variables. No signature may reach them, and a server restores.
SAVING = frozenset(
    "DisableCopyOnRead MergeV2Checkpoints SaveV2 ShardedFilename StaticRegexFullMatch StringJoin".split()
)
RESTORING = frozenset({"AssignVariableOp", "RestoreV2"})
OBJECTS = {"user_object", "function", "bare_concrete_function", "variable", "constant", "captured_tensor"}
PLAIN_OBJECTS = {
    "_generic_user_object",
    "signature_map",
    "trackable_dict_wrapper",
    "trackable_list_wrapper",
    "trackable_tuple_wrapper",
}
REGISTERED = {"", "tf.TrackableConstant"}  # classes that TensorFlow itself registers
MAIN = "saved_model_main_op"  # the collection that names the node that a server runs first


def load_saved_model(path, names=None):
    """A function from a list of arrays to the list of outputs."""
    import tempfile

    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder, "model")
        if set(str(path)) & set("*?["):  # TensorFlow would read the path as a pattern
            link.symlink_to(Path(path).absolute(), target_is_directory=True)
        loaded = tf.saved_model.load(str(link if link.exists() else path))
    return lambda inputs: [np.asarray(x) for x in tf.nest.flatten(loaded.serve(*inputs))]


load = load_saved_model


def check_objects(path, objects):
    """Refuses objects that run code when TensorFlow loads them."""
    if not objects.nodes:
        refuse(path, "no objects: TensorFlow 1 wrote it")
    for node in objects.nodes:
        kind = node.WhichOneof("kind")
        foreign = node.registered_saver or (node.registered_name if node.registered_name not in REGISTERED else "")
        if kind == "user_object" and node.user_object.identifier not in PLAIN_OBJECTS:
            foreign = node.user_object.identifier
        if kind not in OBJECTS or foreign:
            refuse(path, f"an object of the kind {foreign or kind}")


def require_unreached(path, saver, nodes, graph):
    """Refuses a file in which a signature or another node leads to the nodes that save and restore."""
    names = [name.lstrip("^") for node in nodes for name in node.input]
    names += [x.name for s in graph.signature_def.values() for part in (s.inputs, s.outputs) for x in part.values()]
    names += graph.collection_def[MAIN].node_list.value
    for name in names:
        if name.partition(":")[0] in saver:
            refuse(path, "a signature that saves or restores files")


def list_methods(graph):
    """The names of the objects' functions."""
    objects = graph.object_graph_def
    names = list(objects.concrete_functions)
    for node in objects.nodes:
        names += [*node.function.concrete_functions, node.bare_concrete_function.concrete_function_name]
    return names


def list_callees(node, library):
    """The functions that a node calls, by its operation or its attributes."""
    functions = [node.op] if node.op in library else []
    for value in node.attr.values():
        functions += [x.name for x in [value.func, *value.list.func] if x.name]
    return functions


def list_reachable(library, names):
    """The names of these functions and of all functions that they call, directly or indirectly."""
    reached, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name in library and name not in reached:
            reached.add(name)
            waiting += [callee for node in library[name].node_def for callee in list_callees(node, library)]
    return reached


def require_computing(path, node, library):
    if node.op not in COMPUTING and node.op not in library:
        refuse(path, f"the operation {node.op}, which is not among those that an export writes")


def require_given_files(path, node, graph, library):
    """Refuses a node that restores variables from other files than a server names: the node's first input names them,
    and so does the first argument of the function that it calls."""
    called = list_callees(node, library)
    given = f"{node.input[0]}:0" == graph.saver_def.filename_tensor_name if node.input else False
    for name in list_reachable(library, called):
        function = library[name]
        named = [x.name for x in function.signature.input_arg[:1]] if given and name in called else []
        if any(inner.op == "RestoreV2" and inner.input[:1] != named for inner in function.node_def):
            refuse(path, "a function that restores variables from files of its own choice")


def check_functions(path, graph):
    """Refuses functions that do more than compute, except those that save and restore if nothing else calls them."""
    library = {function.signature.name: function for function in graph.graph_def.library.function}
    if len(library) != len(graph.graph_def.library.function):
        refuse(path, "two functions of the same name")
    saver = {graph.saver_def.save_tensor_name.partition(":")[0]: SAVING, graph.saver_def.restore_op_name: RESTORING}
    top = [node for node in graph.graph_def.node if node.name not in saver]
    require_unreached(path, saver, top, graph)
    allowed = {}
    for node in graph.graph_def.node:
        require_computing(path, node, library)
        if node.name in saver:
            for name in list_reachable(library, list_callees(node, library)):
                allowed[name] = saver[node.name] & allowed.get(name, saver[node.name])
        if node.name == graph.saver_def.restore_op_name:
            require_given_files(path, node, graph, library)
    computing = [*list_methods(graph), *(name for node in top for name in list_callees(node, library))]
    allowed |= dict.fromkeys(list_reachable(library, computing), frozenset())
    for name, function in library.items():
        for node in function.node_def:
            if node.op not in allowed.get(name, ()):
                require_computing(path, node, library)


def check(path):
    from tensorflow.core.protobuf import saved_model_pb2

    proto = saved_model_pb2.SavedModel()
    proto.ParseFromString((path / "saved_model.pb").read_bytes())
    if len(proto.meta_graphs) != 1:
        refuse(path, f"{len(proto.meta_graphs)} graphs, where an export writes one")
    graph = proto.meta_graphs[0]
    if graph.asset_file_def or set(graph.collection_def) - {MAIN}:
        refuse(path, "assets or collections, which an export does not write")
    check_objects(path, graph.object_graph_def)
    check_functions(path, graph)


def weight_bytes(path):
    """Bytes of the weights in the folder `path`."""
    return sum(file.stat().st_size for file in path.glob("variables/variables.data-*"))
