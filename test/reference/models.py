"""Models saved by Python and by reel, each to be read by the other.

    models.py               writes models.safetensors (the weights, as anybody would save them) and
                            models_figures.safetensors (inputs and what PyTorch makes of them)
    models.py --read FILE   loads the weights in FILE, which reel wrote, and says how far the outputs are from those
                            figures. models.txt is what it says of models_reel.safetensors, which
                            `reel_tests '[write models]'` makes.
"""
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from torch import nn

here = pathlib.Path(__file__).parent


class Block(nn.Module):
    """He et al. 2016, figure 2."""

    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + self.shortcut(x)).relu()


class Zoo(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
        self.lenet = nn.Sequential(
            nn.Conv2d(1, 2, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(12, 4))
        self.block = Block(2, 3, 2)
        self.bilstm = nn.LSTM(4, 3, num_layers=2, bidirectional=True)
        self.gru = nn.GRU(4, 3, num_layers=2)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6), 2)
        self.attention = nn.MultiheadAttention(4, 2)
        self.norm = nn.BatchNorm1d(4)

    def outputs(self, x):
        return {
            "mlp": self.mlp(x["rows"][:, :5]),
            "lenet": self.lenet(x["images"][:, :1]),
            "block": self.block(x["images"]),
            "bilstm": self.bilstm(x["sequences"])[0],
            "gru": self.gru(x["sequences"])[0],
            "encoder": self.encoder(x["sequences"]),
            "attention": self.attention(x["sequences"], x["sequences"], x["sequences"])[0],
            "norm": self.norm(x["rows"][:, :4]),
        }


def new_zoo():
    zoo = Zoo()
    zoo.outputs({"rows": torch.randn(9, 6) * 3 + 1, "images": torch.randn(3, 2, 16, 16) + 1,
                 "sequences": torch.randn(4, 2, 4)})  # the norms' running statistics
    return zoo.eval()


torch.manual_seed(1)
zoo = new_zoo()
if len(sys.argv) == 1:
    inputs = {"rows": torch.randn(2, 6), "images": torch.randn(2, 2, 16, 16), "sequences": torch.randn(3, 2, 4)}
    with torch.no_grad():
        figures = inputs | {"y." + name: y.contiguous() for name, y in zoo.outputs(inputs).items()}
    save_file(zoo.state_dict(), here / "models.safetensors")
    save_file(figures, here / "models_figures.safetensors")
else:
    torch.manual_seed(2)  # other weights, so that none can be left out unseen
    zoo = new_zoo()
    print(zoo.load_state_dict(load_file(sys.argv[2]), strict=True))
    figures = load_file(here / "models_figures.safetensors")
    with torch.no_grad():
        for name, y in zoo.outputs(figures).items():
            print(f"{name}: {len(getattr(zoo, name).state_dict())} tensors, largest difference",
                  (y - figures["y." + name]).abs().max().item())
