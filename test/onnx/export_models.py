"""What ONNX Runtime computes of the models that test/onnx/export_models.cpp has written: export_models.py FOLDER."""
import glob
import sys

import numpy
import onnx
import onnxruntime
from safetensors.numpy import load_file

options = onnxruntime.SessionOptions()
options.log_severity_level = 3
for file in sorted(glob.glob(sys.argv[1] + "/*.onnx")):
    onnx.checker.check_model(file, full_check=True)
    model = onnx.load(file)
    assert (model.ir_version, model.opset_import[0].version, model.producer_name) == (8, 17, "reel"), file
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    values = load_file(file.replace(".onnx", ".safetensors"))
    worst = 0
    for key in [key for key in values if key.startswith("input")]:
        (got,) = session.run(["y"], {"x": values[key]})
        expected = values[key.replace("input", "output")]
        assert got.shape == expected.shape, (file, key, got.shape, expected.shape)
        worst = max(worst, numpy.abs(got - expected).max())
    print(file.rsplit("/", 1)[1], "differs by at most", worst)
    assert worst <= 1e-5, file
