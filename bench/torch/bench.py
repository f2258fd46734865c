"""bench/bench.h for PyTorch: the same flags, numbers, way of timing and lines of JSON."""
import argparse
import ast
import functools
import math
import os
import re
import resource
import signal
import sys
import time
import traceback
import warnings

import numpy
import torch

warnings.filterwarnings("ignore", "Sparse invariant checks")
HERE = os.path.dirname(os.path.abspath(__file__))


def constants(header, namespace=None):
    """The constants of a header beside this folder, so that no number is written down twice: kName = 1, {1, 2} or
    {{"name", 1}, {"other", 2}}."""
    with open(os.path.join(HERE, "..", header), encoding="utf-8") as file:
        text = file.read()
    if namespace:
        text = text.split(f"namespace {namespace} {{")[1].split("}  // namespace")[0]
    number = r"-?[\d.]+(?:e-?\d+)?"
    found = re.findall(rf"(k\w+)(?:\[\])? = ({number}\b|\{{[^;]*?\}}(?=[,;]\s*(?:k\w+ =|\n)))", text)
    return {name: ast.literal_eval(value.replace("{", "[").replace("}", "]")) for name, value in found}


# ---- options ---------------------------------------------------------------------------------------------------------


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", default="", help="this one or this group: op.chain_add, op")
    parser.add_argument("--data", default=os.environ.get("REEL_DATA", ""), help="a folder with corpora")
    parser.add_argument("--json", default="", help="append the results to this file")
    parser.add_argument("--secs", type=float, default=3, help="of each measurement")
    parser.add_argument("--trees", type=int, default=300)
    parser.add_argument("--sentences", type=int, default=320)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--small", action="store_true", help="less of what is for GPUs, so that a processor can do it")
    parser.add_argument("--list", action="store_true", help="only name the workloads")
    return parser.parse_args()


# ---- timing ----------------------------------------------------------------------------------------------------------

# Where tensors are made, by name: torch.set_default_device would slow down every call of a function of torch's.
device = "cpu"
GPU_SECONDS = 120  # A workload of a GPU that takes longer is taken to hang.


def set_device(name):
    global device
    device = name


def on_gpu():
    return device == "cuda"


def wait():
    """Until the GPU has done what was queued."""
    if on_gpu():
        torch.cuda.synchronize()


def now():
    return time.perf_counter(), time.process_time()


def finished():
    wait()
    return now()


class Samples:
    def __init__(self):
        self.walls, self.cpus = [], []

    def add(self, start, end):
        self.walls.append(end[0] - start[0])
        self.cpus.append(end[1] - start[1])

    @staticmethod
    def at(times, quantile):
        return sorted(times)[min(int(quantile * len(times)), len(times) - 1)]

    def wall(self, quantile=0.5):
        return self.at(self.walls, quantile)

    def cpu(self):
        return self.at(self.cpus, 0.5)


def measure(f, secs, warm_up=3, least=7):
    for _ in range(warm_up):
        f()
    samples = Samples()
    end = finished()[0] + secs
    while len(samples.walls) < least or now()[0] < end:
        start = now()
        f()
        samples.add(start, finished())
    return samples


# ---- results ---------------------------------------------------------------------------------------------------------


def field(key, value):
    return f'"{key}": {value:.7g}'


def check_loss(loss, expected):
    if expected is not None and not abs(loss - expected) <= 1e-3 * abs(expected):
        raise RuntimeError(f"first-pass loss is {loss}, expected {expected}")
    return field("first_pass_loss", loss)


def within(name, group):
    return not group or name == group or name.startswith(group + ".")


class Report:
    def __init__(self, options):
        self.options, self.good = options, True
        self.library = "torch-" + torch.__version__
        if not options.list:
            where = "on a GPU, " if self.on_gpu() else ""
            print(f"{self.library}, {where}{options.threads} thread{'s' * (options.threads != 1)}")
            columns = f"{'workload':<26} {'median':>10} {'cpu':>10} {'p10':>10} {'p90':>10}  {'unit':<11} {'peak MiB':>8}"
            print(columns, flush=True)

    def on_gpu(self):
        return self.options.device == "cuda"

    def run(self, workload, f):
        """In a process of its own, which alone may touch the GPU."""
        if not within(workload, self.options.workload) and not within(self.options.workload, workload):
            return
        if self.options.list:
            print(workload)
            return
        child = os.fork()
        if child == 0:
            status = 0
            if self.on_gpu():
                signal.alarm(GPU_SECONDS)
            try:
                torch.set_num_threads(self.options.threads)
                set_device(self.options.device)
                # As exact as reel is unless it is told otherwise; for convolutions PyTorch's own default is TF32.
                torch.backends.cudnn.allow_tf32 = False
                f()
            except Exception:
                print(f"{workload}:", file=sys.stderr)
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = os.waitpid(child, 0)[1]
        if status != 0:
            self.good = False
        if os.WIFSIGNALED(status):
            print(f"{workload}: ended by {signal.Signals(os.WTERMSIG(status)).name}", file=sys.stderr)

    def time(self, workload, samples, scale, unit, more=""):
        self.print(workload, samples, unit, lambda seconds: seconds * scale, more)

    def rate(self, workload, samples, count, unit, more=""):
        self.print(workload, samples, unit, lambda seconds: count / seconds, more)

    def print(self, workload, samples, unit, value, more):
        if not within(workload, self.options.workload):
            return
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        held = torch.cuda.max_memory_allocated() / 2**20 if self.on_gpu() else 0
        median, cpu = value(samples.wall()), value(samples.cpu())
        best, p10, p90 = (value(samples.wall(quantile)) for quantile in (0, 0.1, 0.9))
        print(f"{workload:<26} {median:10.4g} {cpu:10.4g} {p10:10.4g} {p90:10.4g}  {unit:<11} {held or resident:8.0f}")
        if more:
            print(f"  {more}")
        sys.stdout.flush()
        if not self.options.json:
            return
        with open(self.options.json, "a", encoding="utf-8") as file:
            file.write(
                f'{{"workload": "{workload}", "library": "{self.library}", "device": "{self.options.device}", '
                f'"threads": {self.options.threads}, "median": {median:.6g}, "unit": "{unit}", '
                f'"cpu_median": {cpu:.6g}, "best": {best:.6g}, "p10": {p10:.6g}, "p90": {p90:.6g}, '
                f'"n": {len(samples.walls)}, "peak_rss_mib": {resident:.1f}, "peak_device_mib": {held:.1f}'
                f'{", " + more if more else ""}}}\n'
            )


# ---- numbers that are the same everywhere ----------------------------------------------------------------------------

GAMMA, MASK = 0x9E3779B97F4A7C15, 2**64 - 1


def mix(z):
    """SplitMix64's output for a state: an int, or an array of uint64."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


class Random:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = self.state + GAMMA & MASK
        return mix(self.state) % n


def bits24(seed, n):
    """The upper 24 bits of SplitMix64's first n numbers."""
    with numpy.errstate(over="ignore"):
        z = numpy.uint64(seed) + numpy.arange(1, n + 1, dtype=numpy.uint64) * numpy.uint64(GAMMA)
        z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        z = z ^ (z >> numpy.uint64(31))
    return z >> numpy.uint64(40)


def filled(shape, seed, bound):
    """A tensor uniform in ±bound."""
    one = numpy.float32(1)
    z = bits24(seed, int(numpy.prod(shape)))
    values = z.astype(numpy.float32) / numpy.float32(16777216) * (one + one) - one
    return torch.from_numpy((values * numpy.float32(bound)).reshape(shape)).to(device)


PERIOD, APART = 1048573, 7919  # as in breadth.cpp


@functools.cache
def noise_twice():
    return torch.from_numpy(bits24(1, PERIOD).astype(numpy.int32)).repeat(2)


def noise(count, position=0):
    """Whole numbers in [0, 2^24), of the breadth benchmark; `position` makes operands of a call differ."""
    start = noise_twice()[APART * position :][: min(count, PERIOD)]
    return start.clone() if count <= PERIOD else start.repeat(-(-count // PERIOD))[:count]


def uniform(low, high, shape, position=0):
    return noise(math.prod(shape), position).float().mul_((high - low) / 2**24).add_(low).view(shape)


def ids(limit, shape, position=0):
    return noise(math.prod(shape), position).remainder(limit).long().view(shape)


def leaf(shape, seed, bound):
    return filled(shape, seed, bound).requires_grad_()


def zeros(*shape):
    return torch.zeros(shape, device=device, requires_grad=True)


def rand(*shape, requires_grad=False):
    return torch.rand(shape, device=device, requires_grad=requires_grad)


def tensor(values):
    return torch.tensor(values, device=device)


def classes(n, count):
    return torch.arange(n, device=device) % count


def fill(parameter, seed, bound):
    with torch.no_grad():
        parameter.copy_(filled(parameter.shape, seed, bound))


def place(module):
    return module.to(device)
