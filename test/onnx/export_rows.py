"""What ONNX Runtime computes of the models that test/onnx/export_rows.cpp has written: export_rows.py FOLDER."""
import sys

import numpy
import onnx
import onnxruntime
from safetensors.numpy import load_file

folder = sys.argv[1]
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
wrong = 0
for line in open(folder + "/rows.txt"):
    number, name = line.rstrip("\n").split(" ", 1)
    file = f"{folder}/{number}.onnx"
    try:
        onnx.checker.check_model(file, full_check=True)
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        values = load_file(f"{folder}/{number}.safetensors")
        inputs = {port.name: values[port.name] for port in session.get_inputs()}
        got, expected = session.run(None, inputs)[0], values["output_0"]
        assert got.dtype == expected.dtype and got.shape == expected.shape, (got.dtype, got.shape, expected.shape)
        if got.dtype == bool or got.dtype.kind in "iu":
            assert (got == expected).all(), (got, expected)
        else:
            numpy.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    except Exception as error:
        wrong += 1
        print(f"{name}: {str(error)[:600]}")
sys.exit(wrong > 0)
