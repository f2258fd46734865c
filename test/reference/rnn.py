"""What PyTorch makes of packed sequences of lengths 2, 4 and 1 in two bidirectional layers: outputs, last states and all
gradients of Σ w y + Σ h² (+ Σ c²), for parameters and inputs from a formula; all in one line of numbers each. Writes
rnn.safetensors beside itself."""
import pathlib

import torch
from safetensors.torch import save_file
from torch.nn.utils.rnn import pack_sequence

torch.set_default_dtype(torch.float64)


def ramp(shape, start):
    n = torch.Size(shape).numel()
    return torch.sin(start + torch.arange(n, dtype=torch.float64)).reshape(shape)


results = {}
for name, net in {
    "lstm": torch.nn.LSTM(3, 2, 2, bidirectional=True),
    "lstm_projected": torch.nn.LSTM(3, 3, 2, bidirectional=True, proj_size=2),
    "gru": torch.nn.GRU(3, 2, 2, bidirectional=True),
    "rnn_tanh": torch.nn.RNN(3, 2, 2, bidirectional=True),
    "rnn_relu": torch.nn.RNN(3, 2, 2, bidirectional=True, nonlinearity="relu"),
}.items():
    with torch.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(ramp(p.shape, 10 * i))
    xs = [ramp((n, 3), 7 * n).requires_grad_() for n in (2, 4, 1)]
    h = ramp((4, 3, 2), 500).requires_grad_()
    c = ramp((4, 3, net.hidden_size), 600).requires_grad_()
    lstm = name.startswith("lstm")
    y, state = net(pack_sequence(xs, enforce_sorted=False), (h, c) if lstm else h)
    states = list(state) if lstm else [state]
    loss = (y.data * ramp(y.data.shape, 1)).sum() + sum((s * s).sum() for s in states)
    loss.backward()
    tensors = [y.data, *states, h.grad] + ([c.grad] if lstm else []) + [x.grad for x in xs]
    tensors += [p.grad for p in net.parameters()]
    results[name] = torch.cat([t.detach().flatten() for t in tensors])

save_file(results, pathlib.Path(__file__).with_name("rnn.safetensors"))
