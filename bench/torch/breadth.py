"""PyTorch's side of the breadth benchmark: answers the requests of bench/breadth.py as bench/breadth.cpp does."""
import math
import pathlib
import re
import sys
import warnings

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "test" / "differential"))  # before this folder, whose ops is another

import breadth_models  # noqa: E402
import ops  # noqa: E402
from bench import Samples, ids, measure, noise, now, uniform  # noqa: E402

warnings.filterwarnings("ignore")

# ---- operands --------------------------------------------------------------------------------------------------------

DTYPES = {"kFloat32": torch.float32, "kBFloat16": torch.bfloat16, "kFloat16": torch.float16, "kInt64": torch.int64,
          "kBool": torch.bool, "kFloat64": torch.float64}  # fmt: skip


def elements(values, shape, dtype, position):
    n = math.prod(shape)
    if ".." in values:
        low, high = map(float, values.split(".."))
        if dtype.is_floating_point:
            return uniform(low, high, shape, position).to(dtype)
        first, last = math.ceil(low), math.floor(high)
        return ids(last - first + 1, shape, position).add_(first).to(dtype)
    if values.startswith("ids<"):
        return ids(int(values[4:]), shape, position)
    if values.startswith("steps"):
        return torch.arange(n).mul_(int(values[5:])).view(shape)
    if values == "bool":
        return noise(n, position).view(shape) < 2**23
    if values == "permutation":
        return (torch.arange(n) * 7919).remainder(n).view(shape)
    if values == "rising":
        return (torch.arange(n).float() / n).view(shape)
    if values != "positive":
        raise ValueError(f"there are no values '{values}'")
    a = uniform(-1, 1, shape, position)
    return a @ a.transpose(-1, -2) / shape[-1] + torch.eye(shape[-1])


def operand(dtype, values, shape, layout, position):
    made = [int(size) for size in shape.split(",")]
    shape = list(made)
    if layout == "transposed":
        made[-1], made[-2] = made[-2], made[-1]
    if layout == "strided":
        made[-1] *= 2
    if layout in ("row", "expanded"):
        made[0] = 1
    x = elements(values, made, DTYPES[dtype], position)
    if layout == "transposed":
        return x.transpose(-1, -2)
    if layout == "strided":
        return x[..., ::2]
    return x.expand(shape) if layout == "expanded" else x


# ---- calls -----------------------------------------------------------------------------------------------------------

WORDS = {"_": None, "true": True, "false": False, "kMean": "mean", "kSum": "sum", "kNoReduction": "none",
         "Reduce::kSum": "sum", "Reduce::kMean": "mean", "Reduce::kMax": "amax", "Reduce::kMin": "amin",
         "kConstant": "constant", "kReflect": "reflect", "kReplicate": "replicate", "kCircular": "circular",
         "kBilinear": "bilinear", "kTrilinear": "trilinear", "kBicubic": "bicubic", "kNearest": "nearest",
         "Interpolation::kLinear": "linear", "GridPadding::kZeros": "zeros", "kIJ": "ij",
         "linalg::kReduced": "reduced", "linalg::kNuclear": "nuc", **DTYPES}  # fmt: skip

# The ops of bench/breadth_ops.cpp, and those that programs do not draw, as the templates of test/differential/ops.py are.
MORE = {
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout": "F.{op}({0}, {1}, {2})",
    "gumbel_softmax": "F.gumbel_softmax({0}, {1}, {2}, dim={3})",
    "bernoulli normal poisson multinomial swapaxes swapdims broadcast_to rand_like randn_like randint_like randperm": None,
    "embedding_renorm_": "torch.embedding_renorm_({0}, {1}, {2}, {3})",
    "rrelu(training)": "F.rrelu({0}, 0.125, 0.25, True)",
    "fractional_max_pool2d": "F.fractional_max_pool2d({0}, {1}, output_ratio=({2}, {2}))",
    "fractional_max_pool3d": "F.fractional_max_pool3d({0}, {1}, output_ratio=({2}, {2}, {2}))",
    "gru_cell rnn_tanh_cell rnn_relu_cell": "torch.{op}({0}, {1}, {2}, {3}, {4}, {5})",
    "lstm_cell": "torch.lstm_cell({0}, ({1}, {2}), {3}, {4}, {5}, {6})",
    "gru rnn_tanh rnn_relu": "torch.{op}({0}, {1}, {2}, True, 1, 0.0, False, False, False)[0]",
    "lstm": "torch.lstm({0}, ({1}, {2}), {3}, True, 1, 0.0, False, False, False)[0]",
    "max_pool1d(values) max_pool2d(values) max_pool3d(values)": "F.{op}({0}, {1}, {2}, {3})",
    "adaptive_max_pool1d(values) adaptive_max_pool2d(values) adaptive_max_pool3d(values)": "F.{op}({0}, {1})",
    "max_unpool1d max_unpool2d max_unpool3d": "F.{op}({0}, {1}, {2})",
    "multilabel_margin_loss": "F.multilabel_margin_loss({0}, {1}, reduction={2})",
    "multilabel_soft_margin_loss": "F.multilabel_soft_margin_loss({0}, {1}, {2}, reduction={3})",
    "linear_relu": "F.relu(F.linear({0}, {1}, {2}))",
    "pad_sequence": "torch.nn.utils.rnn.pad_sequence({0}, {1}, {2})",
    "ctc_loss": "F.ctc_loss({0}, {1}, {2}, {3})",
    "linalg.eigh": "torch.linalg.eigh({0}).eigenvalues",
    "linalg.svd": "torch.linalg.svd({0}, full_matrices=False).S",
    "attention(gqa)": "F.scaled_dot_product_attention({0}, {1}, {2}, is_causal=True, enable_gqa=True)",
}
# What programs write so that the two languages agree to the last bit, which costs PyTorch time.
PLAIN = {
    "index_put": "{0}.index_put(tuple({1}), {2}, {3})",
    "index_put_": "{0}.index_put_(tuple({1}), {2}, {3})",
    "sort": "torch.sort({0}, {1}, {2})",
    "argsort": "torch.argsort({0}, {1}, {2})",
    "put_along_dim": "torch.scatter({0}, {3}, {1}, {2})",
}


def templates():
    found = {op.name: op for op in ops.OPS}
    for names, template in MORE.items():
        for name in names.split():
            found[name] = ops.Op(name, None, template and template.replace("{op}", name.split("(")[0]))
    for name, template in PLAIN.items():
        found[name] = ops.Op(name, None, template)
    return found


OPS = templates()


def argument(word, operands, op):
    if word.startswith("["):
        return [argument(one, operands, op) for one in word[1:-1].split(",") if one]
    if word.startswith("%"):
        return operands[int(word[1:])]
    if word in WORDS:
        value = WORDS[word]
        return value[1:] if op in ("embedding_bag", "segment_reduce") and value in ("amax", "amin") else value
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    try:
        return float(word)
    except ValueError:
        return word


def function(op, args):
    """A function of the operands' tensors without the cost of looking anything up."""
    places = [f"a[{i}]" for i in range(len(args))]
    source = OPS[op].template(len(args), "torch").format(*places)
    return eval(f"lambda: {source}", {"torch": torch, "F": F, "a": args})


def tensors(result):
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, (tuple, list)):
        return [one for part in result for one in tensors(part)]
    return [] if result is None else [torch.tensor(result)]


made = {"descriptions": None, "operands": []}  # the last operands


def make_operands(descriptions, changed):
    """The last operands again if they are described alike and no op has changed them."""
    if descriptions != made["descriptions"]:
        made["operands"] = []
        for i, description in enumerate(filter(None, descriptions.split(";"))):
            made["operands"].append(operand(*description.split(" ")[:-1], i))
    made["descriptions"] = None if changed else descriptions
    return [x.detach() for x in made["operands"]]


def op_step(mode, op, descriptions, words):
    operands = make_operands(descriptions, op.endswith("_"))
    leaves = []
    if mode == "backward":
        wanted = [description.endswith(" grad") for description in descriptions.split(";")]
        leaves = [x.requires_grad_() for x, grad in zip(operands, wanted) if grad]
    call = function(op, [argument(word, operands, op) for word in words.split(" ")])
    if mode == "forward":

        def forward():
            with torch.no_grad():
                return call()

        return forward
    cotangents = []

    def backward():
        results = [y for y in tensors(call()) if y.requires_grad]
        if not cotangents:
            cotangents.extend(torch.ones_like(y).mul_(uniform(0.5, 1.5, y.shape, 9).to(y.dtype)) for y in results)
        torch.autograd.backward(results, cotangents)
        grads = [leaf.grad for leaf in leaves]
        for leaf in leaves:
            leaf.grad = None
        return grads

    return backward


# ---- answers ---------------------------------------------------------------------------------------------------------

SAMPLE = 61


def describe(results):
    text = []
    for y in tensors(results):
        y = y.detach()
        count = min(y.numel(), SAMPLE)
        at = torch.arange(count) * y.numel() // max(count, 1)
        values = y.reshape(-1)[at].double().tolist()
        shape = "[" + ", ".join(map(str, y.shape)) + "]"
        text.append(f"{str(y.dtype)[6:]} {shape} |" + "".join(f" {value:.9g}" for value in values))
    return text


def timed(step, secs):
    samples = Samples()
    start = now()
    step()
    samples.add(start, now())
    once = samples.wall()
    repeats = range(int(5e-5 / max(once, 1e-8)) + 1 if once < 5e-5 else 1)

    def repeat():
        for _ in repeats:
            step()

    if once < 10 * secs:
        samples = measure(repeat, secs, 0, 3 if once < secs else 1)
    return [str(samples.cpu() / len(repeats)), str(samples.wall() / len(repeats))]


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    torch.manual_seed(1)
    step = None
    for line in sys.stdin:
        what, *request = line.rstrip("\n").split("\t")
        try:
            if what == "version":
                answer = [torch.__version__]
            elif what == "time":
                answer = timed(step, float(request[0]))
            else:
                step = None
                if what != "op":
                    made["descriptions"] = None
                    made["operands"].clear()
                answer = []
                if what != "clear":
                    step = op_step(*request) if what == "op" else breadth_models.step(*request)
                    answer = describe(step())
            answer = ["ok", *answer]
        except Exception as error:
            answer = ["error", " ".join(str(error).split())[:200]]
        print(*answer, sep="\t", flush=True)


if __name__ == "__main__":
    main()
