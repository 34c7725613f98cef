"""Which TFLite files may be opened: those with built-in operators alone, and no other files; see `formats`."""

from ai_edge_litert import schema_py_generated as schema

from keras_vit.export.proof.allowed import refuse

REFUSED = ("CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES", "STABLEHLO_CUSTOM_CALL")
MOST = 1 << 20  # entries of a vector


def check(path):
    data = path.read_bytes()
    if not schema.Model.ModelBufferHasIdentifier(data, 0):
        refuse(path, "no identifier of TFLite")
    model = schema.Model.GetRootAs(data)
    lengths = (model.OperatorCodesLength(), model.SubgraphsLength(), model.BuffersLength())
    if max(lengths) > min(MOST, len(data)):
        refuse(path, "a list that is longer than the file")
    if model.ExternalBufferGroupsLength() or model.ExternalBuffersLength():
        refuse(path, "data in other files")
    refused = {getattr(schema.BuiltinOperator, name): name for name in REFUSED}
    for code in map(model.OperatorCodes, range(model.OperatorCodesLength())):
        name = code.CustomCode()
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if name or number in refused:
            refuse(
                path, f"the operator {(name or b'').decode(errors='replace') or refused[number]}, not a built-in one"
            )
