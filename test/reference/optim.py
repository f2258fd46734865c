"""Figures of PyTorch's optimizers and schedules, for test/optim: python3 test/reference/optim.py (torch, safetensors)."""

import math
import pathlib

import torch
from safetensors.torch import save_file
from torch import optim
from torch.optim import lr_scheduler as lrs

torch.set_default_dtype(torch.float64)
figures = {}

# ---- 20 steps from sin(1), sin(2), … with gradients cos(p (i + 1)) + 0.3 sin(7 t + i) -------------------------------

i = torch.arange(5.0)
optimizers = {
    "sgd": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.02, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, lr=0.02, weight_decay=0.1),
    "adam_amsgrad": lambda p: optim.Adam(p, lr=0.02, betas=(0.8, 0.9), amsgrad=True),
    "adamw": lambda p: optim.AdamW(p, lr=0.02),
    "adamw_amsgrad": lambda p: optim.AdamW(p, lr=0.02, betas=(0.8, 0.9), weight_decay=0.1, amsgrad=True),
    "adamax": lambda p: optim.Adamax(p, lr=0.02, weight_decay=0.1),
    "nadam": lambda p: optim.NAdam(p, lr=0.02, weight_decay=0.1),
    "nadam_decoupled": lambda p: optim.NAdam(p, weight_decay=0.1, momentum_decay=0.1, decoupled_weight_decay=True),
    "radam": lambda p: optim.RAdam(p, lr=0.02, weight_decay=0.1),
    "radam_decoupled": lambda p: optim.RAdam(p, betas=(0.8, 0.9), weight_decay=0.1, decoupled_weight_decay=True),
    "rmsprop": lambda p: optim.RMSprop(p, weight_decay=0.1),
    "rmsprop_centered": lambda p: optim.RMSprop(p, alpha=0.9, momentum=0.8, centered=True),
    "adadelta": lambda p: optim.Adadelta(p, weight_decay=0.1),
}
for name, make in optimizers.items():
    p = torch.sin(1 + i).requires_grad_()
    optimizer = make([p])
    steps = []
    for t in range(20):
        p.grad = (torch.cos(p * (i + 1)) + 0.3 * torch.sin(7 * t + i)).detach()
        optimizer.step()
        steps.append(p.detach().clone())
    figures["optimizer." + name] = torch.stack(steps)

# ---- rows t % 4 and t % 3 of a matrix 4 × 2 with sparse gradients -----------------------------------------------------

weight = torch.sin(torch.arange(8.0)).reshape(4, 2).requires_grad_()
optimizer = optim.SparseAdam([weight], lr=0.05)
steps = []
for t in range(20):
    optimizer.zero_grad()
    rows = torch.nn.functional.embedding(torch.tensor([t % 4, t % 3]), weight, sparse=True)
    torch.sin(rows * (t + 1)).sum().backward()
    optimizer.step()
    steps.append(weight.detach().clone())
figures["optimizer.sparse_adam"] = torch.stack(steps)

# ---- L-BFGS on Rosenbrock's function in four dimensions ---------------------------------------------------------------

for name, options in {
    "lbfgs": dict(lr=0.3, max_iter=3, history_size=4),
    "lbfgs_wolfe": dict(max_iter=3, line_search_fn="strong_wolfe"),
}.items():
    x = torch.tensor([-1.2, 1.0, -0.5, 0.8]).requires_grad_()
    optimizer = optim.LBFGS([x], **options)

    def closure():
        optimizer.zero_grad()
        loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
        loss.backward()
        return loss

    steps = []
    for t in range(20):
        optimizer.step(closure)
        steps.append(x.detach().clone())
    figures["optimizer." + name] = torch.stack(steps)

# ---- the rates (and momenta) of epochs 0 … 39 --------------------------------------------------------------------------


def sequential(o):
    parts = [lrs.LinearLR(o, start_factor=0.1, total_iters=5), lrs.CosineAnnealingLR(o, T_max=20), lrs.ExponentialLR(o, 0.9)]
    return lrs.SequentialLR(o, parts, milestones=[5, 25])


schedules = {
    "step": lambda o: lrs.StepLR(o, step_size=7, gamma=0.5),
    "multi_step": lambda o: lrs.MultiStepLR(o, milestones=[3, 10, 10, 30]),
    "exponential": lambda o: lrs.ExponentialLR(o, gamma=0.9),
    "constant": lambda o: lrs.ConstantLR(o, factor=0.25, total_iters=8),
    "linear": lambda o: lrs.LinearLR(o, start_factor=0.1, end_factor=0.8, total_iters=12),
    "polynomial": lambda o: lrs.PolynomialLR(o, total_iters=30, power=2.0),
    "cosine": lambda o: lrs.CosineAnnealingLR(o, T_max=12, eta_min=0.01),
    "cosine_restarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, T_0=5, T_mult=2, eta_min=0.001),
    "one_cycle": lambda o: lrs.OneCycleLR(o, max_lr=0.5, total_steps=40),
    "one_cycle_three": lambda o: lrs.OneCycleLR(o, max_lr=0.5, total_steps=40, three_phase=True, anneal_strategy="linear"),
    "cyclic": lambda o: lrs.CyclicLR(o, base_lr=0.01, max_lr=0.2, step_size_up=6, step_size_down=3),
    "cyclic2": lambda o: lrs.CyclicLR(o, base_lr=0.01, max_lr=0.2, step_size_up=4, mode="triangular2"),
    "cyclic_exp": lambda o: lrs.CyclicLR(o, base_lr=0.01, max_lr=0.2, step_size_up=4, mode="exp_range", gamma=0.95),
    "lambda": lambda o: lrs.LambdaLR(o, lambda e: 1 / (1 + e)),
    "multiplicative": lambda o: lrs.MultiplicativeLR(o, lambda e: 1 - 0.5 / (1 + e)),
    "chained": lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, factor=0.1, total_iters=5), lrs.ExponentialLR(o, gamma=0.95)]),
    "sequential": sequential,
    "swa": lambda o: optim.swa_utils.SWALR(o, swa_lr=0.5, anneal_epochs=10),
}
for name, make in schedules.items():
    optimizer = optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1, momentum=0.9)
    schedule = make(optimizer)
    rates = []
    for epoch in range(40):
        rates.append([optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["momentum"]])
        optimizer.step()
        if epoch < 39:
            schedule.step()
    figures["schedule." + name] = torch.tensor(rates)

for name, options in {"plateau": dict(patience=2), "plateau_max": dict(mode="max", factor=0.5, patience=1, cooldown=2, threshold=0.1, threshold_mode="abs", min_lr=0.02)}.items():
    optimizer = optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule = lrs.ReduceLROnPlateau(optimizer, **options)
    rates = []
    for epoch in range(40):
        schedule.step(math.sin(epoch) / (1 + epoch))
        rates.append(optimizer.param_groups[0]["lr"])
    figures["schedule." + name] = torch.tensor(rates)

save_file({k: v.contiguous() for k, v in figures.items()}, pathlib.Path(__file__).with_suffix(".safetensors"))
