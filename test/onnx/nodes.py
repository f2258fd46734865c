"""The one-op models of ONNX's own backend tests, each beside a .safetensors file of inputs (in.0, …) and outputs
(out.0, …): nodes.py FOLDER. Those whose values are not dense tensors that safetensors has are left out."""
import pathlib
import sys

import numpy
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from safetensors.numpy import save_file

folder = pathlib.Path(sys.argv[1])
TYPES = {numpy.dtype(t) for t in ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")}
left_out = {}
for case in load_model_tests(kind="node"):
    model = case.model
    opset = next((o for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if opset is None or opset.version < 9:
        left_out[case.name] = "an opset before 9"
        continue
    # Most ops of newer opsets are those of opset 20 with more types.
    if not all(onnx.defs.has(n.op_type, 20, n.domain) or n.domain for n in model.graph.node):
        left_out[case.name] = "an op that came after opset 20"
        continue
    if opset.version > 20 and model.graph.node[0].op_type == "GroupNormalization":
        left_out[case.name] = "changed after opset 20"
        continue
    opset.version = min(opset.version, 20)
    figures = {}
    try:
        for kind, values in zip(("in", "out"), case.data_sets[0]):
            for i, value in enumerate(values):
                array = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else numpy.asarray(value)
                if array.dtype not in TYPES:
                    raise TypeError(str(array.dtype))
                figures[f"{kind}.{i}"] = numpy.array(array, order="C")
    except Exception as error:
        left_out[case.name] = f"{type(error).__name__}: {error}"[:80]
        continue
    onnx.save(model, folder / f"{case.name}.onnx")
    save_file(figures, folder / f"{case.name}.safetensors")
for name, reason in left_out.items():
    print(f"{name}: left out: {reason}")
