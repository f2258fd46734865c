"""Models of PyTorch as ONNX files, each beside a .safetensors file of inputs (in.0, in.1, …) of another batch size than
it was exported with and PyTorch's outputs (out.0, …): models.py FOLDER. Both of PyTorch's exporters, several opsets."""
import pathlib
import sys
import warnings

import torch
from safetensors.torch import save_file
from torch import nn

folder = pathlib.Path(sys.argv[1])
warnings.filterwarnings("ignore")


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc = nn.Sequential(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.avg_pool2d(torch.tanh(self.conv2(x)), 2)
        return torch.log_softmax(self.fc(x.flatten(1)), 1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(24, 7)

    def forward(self, ids):
        return self.out(self.lstm(self.words(ids))[0])


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(8, 12, batch_first=True), nn.Linear(12, 3)

    def forward(self, x):
        y, h = self.gru(x)
        return self.out(y[:, -1]), h


class TextCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.convs = nn.ModuleList(nn.Conv1d(16, 10, k) for k in (3, 4, 5))
        self.drop, self.out = nn.Dropout(0.5), nn.Linear(30, 2)

    def forward(self, ids):
        x = self.words(ids).transpose(1, 2)
        x = torch.cat([torch.relu(conv(x)).amax(2) for conv in self.convs], 1)
        return torch.softmax(self.out(self.drop(x)), 1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 32)
        self.register_buffer("positions", torch.randn(1, 64, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(32, 5)

    def forward(self, ids):
        x = self.words(ids) + self.positions[:, :ids.size(1)]
        return self.out(self.encoder(x).mean(1))


def mlp():
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4), nn.Sigmoid())


def resnet18():
    import torchvision
    net = torchvision.models.resnet18(num_classes=10)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return net


def ids(n):
    return torch.randint(0, 50, (n, 11))


# The models, and what makes their inputs for a batch size.
MODELS = {
    "mlp": (mlp, lambda n: torch.randn(n, 20)),
    "lenet": (LeNet, lambda n: torch.randn(n, 1, 28, 28)),
    "resnet18": (resnet18, lambda n: torch.randn(n, 3, 64, 64)),
    "tagger": (Tagger, ids),
    "gru": (Gru, lambda n: torch.randn(n, 9, 8)),
    "textcnn": (TextCnn, ids),
    "encoder": (Encoder, ids),
}

for name, (make, inputs) in MODELS.items():
    torch.manual_seed(1)
    net = make().eval()
    x, other = inputs(3), inputs(5)
    with torch.no_grad():
        out = net(other)
    figures = {"in.0": other.contiguous()}
    for i, y in enumerate(out if isinstance(out, tuple) else (out,)):
        figures[f"out.{i}"] = y.contiguous()
    for dynamo, opsets in (False, (9, 11, 13, 17, 20)), (True, (18, 20)):
        for opset in opsets:
            to = folder / f"{name}-{'dynamo' if dynamo else 'script'}-{opset}"
            try:
                if dynamo:
                    batch = torch.export.Dim("batch", min=1, max=64)
                    torch.onnx.export(net, (x,), f"{to}.onnx", dynamo=True, opset_version=opset, verbose=False,
                                      dynamic_shapes=({0: batch},) if name != "mlp" else {"input": {0: batch}},
                                      external_data=name == "resnet18")
                else:
                    torch.onnx.export(net, (x,), f"{to}.onnx", dynamo=False, opset_version=opset, input_names=["x"],
                                      dynamic_axes={"x": {0: "batch"}})
            except Exception as error:  # what an exporter cannot is no matter of reading
                print(f"{to.name}: not exported: {type(error).__name__}: {str(error).strip().splitlines()[0][:150]}")
                continue
            save_file(figures, f"{to}.safetensors")
