#!/usr/bin/env python3
"""Measures the ops of breadth.txt and the models of breadth_models.txt turn about with PyTorch, and prints those first
where reel is slowest. bench/run breadth calls this.
"""
import argparse
import dataclasses
import itertools
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import zlib

import breadth_report

HERE = pathlib.Path(__file__).parent
SIZES = ["4KiB", "1MiB", "64MiB"]
ITEM_SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "bool": 1}
NAMES = {"float32": "kFloat32", "bfloat16": "kBFloat16", "float16": "kFloat16", "int64": "kInt64", "bool": "kBool"}
FLAGS = {"int", "integers", "bools", "float32", "rows", "forward", "1MiB", "plain", "shapes"}


@dataclasses.dataclass
class Case:
    """What is measured: a call, or a step of a model."""

    name: str
    group: str
    request: str
    exact: bool  # whether elements are compared, not only shapes
    operands: str  # their descriptions
    size: str = ""
    dtype: str = ""
    layout: str = ""
    mode: str = ""


# ---- what breadth.txt lists ------------------------------------------------------------------------------------------

OPERAND = re.compile(r"(?P<values>-?[\d.e]+\.\.-?[\d.e]+|ids<[^\[\s,]+|steps\d+|bool|permutation|rising|positive)"
                     r"\[(?P<shape>[^\]]*)\](?::(?P<dtype>\w+))?(?P<no_grad>!?)")  # fmt: skip


def families(text):
    """The tables of letters in the comment: letters, and their sizes for each size of the first operand."""
    found = []
    for letters, *sizes in re.findall(r"^#   ([A-Z][\w,]*) +(\d[\d,]*) +(\d[\d,]*) +(\d[\d,]*)", text, re.M):
        names = letters.split(",")
        found.append([{k: int(n) for k, n in zip(names, size.split(",")) if not k.isdigit()} for size in sizes])
    return found


def read_lines(text):
    """(group, names, arguments, flags) of each line."""
    group = ""
    for line in text.splitlines():
        if line.startswith("== "):
            group = line[3:]
        elif line and not line.startswith(("#", "--")):
            names, arguments, flags = (part.strip() for part in line.split("|"))
            unknown = set(flags.split()) - FLAGS
            if unknown:
                raise ValueError(f"breadth.txt: {names}: unknown {', '.join(unknown)}")
            yield group, names.split(), arguments, set(flags.split())


def dtypes_of(flags):
    if flags & {"integers", "bools", "float32"}:
        return ["int64"] if "integers" in flags else ["bool"] if "bools" in flags else ["float32"]
    return ["float32", "bfloat16", "float16"] + ["int64"] * ("int" in flags)


def value(expressions, letters):
    """Numbers, separated by commas."""
    return ",".join(map(str, eval(f"({expressions},)", {"min": min}, letters)))


def operand_layouts(operands, layout, flags, in_place):
    """The layout of each operand, or None if the case is one of another layout, too."""
    first = operands[0]["shape"] if operands else ""
    same = [o["shape"] == first and first.count(",") >= 1 for o in operands]
    if layout == "contiguous":
        return [layout] * len(operands)
    if "plain" in flags or not any(same):
        return None
    if layout != "broadcast":
        return [layout if s else "contiguous" for s in same]
    if "rows" in flags:
        return ["contiguous"] + ["row" if s else "contiguous" for s in same[1:]]
    return None if in_place else ["expanded"] + ["contiguous"] * (len(same) - 1)


def cases_of_line(group, name, arguments, flags, letters_of):
    op, _, label = name.partition(":")
    used = set(re.findall(r"\b[A-Z]\b", " ".join(re.findall(r"[\[{][^\]}]*[\]}]|<[^\[\s]+", arguments))))
    family = next(f for f in letters_of if used <= f[0].keys())
    for size, dtype in itertools.product(range(2 if "1MiB" in flags else 3), dtypes_of(flags)):
        letters = dict(family[size])
        last = list(letters)[-1]
        letters[last] = letters[last] * 4 // ITEM_SIZES[dtype]
        operands = []

        def take(match):
            operands.append(match.groupdict())
            operands[-1]["shape"] = value(match["shape"], letters)
            return f"%{len(operands) - 1}"

        words = arguments.replace("{label}", label)
        words = OPERAND.sub(take, re.sub(r"\{([^}]*)\}", lambda m: value(m[1], letters), words))
        for layout in ["contiguous", "transposed", "strided", "broadcast"]:
            layouts = operand_layouts(operands, layout, flags, op.endswith("_"))
            if layouts is None or size == 2 and layout != "contiguous" and dtype not in ("float32", "bool"):
                continue
            described, wanted = [], False
            for o, how in zip(operands, layouts):
                values = o["values"]
                if values.startswith("ids<"):
                    values = "ids<" + value(values[4:], letters)
                own = o["dtype"] or ("float32" if values in ("positive", "rising") else dtype)
                grad = not o["no_grad"] and own not in ("int64", "bool") and (".." in values or values == "positive")
                wanted |= grad
                described.append(f"{NAMES[own]} {values} {o['shape']} {how} {'grad' if grad else '-'}")
            for mode in ["forward", "backward"][: 2 if wanted and "forward" not in flags else 1]:
                descriptions = ";".join(described)
                yield Case("/".join([name, SIZES[size], dtype, layout, mode]), group,
                           "\t".join(["op", mode, op, descriptions, words]), "shapes" not in flags, descriptions,
                           SIZES[size], dtype, layout, mode)  # fmt: skip


def op_cases():
    text = (HERE / "breadth.txt").read_text(encoding="utf-8")
    letters = families(text)
    for group, names, arguments, flags in read_lines(text):
        for name in names:
            yield from cases_of_line(group, name, arguments, flags, letters)


def model_cases():
    """breadth_models.txt has a line MODEL ARGUMENT… for each."""
    for line in (HERE / "breadth_models.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            model, *arguments = line.split()
            how = arguments[-1]
            mode = next((m for m in ("train", "infer") if how.startswith(m)), "step")
            yield Case("/".join(["model", model, *arguments]), "models", "\t".join(["model", model, ",".join(arguments)]),
                       not how.endswith("16"), line, "", "bfloat16" if how.endswith("16") else "float32", "", mode)  # fmt: skip


# ---- two servers -----------------------------------------------------------------------------------------------------


class Server:
    """A process that answers requests, on fixed cores."""

    def __init__(self, name, command, cores):
        self.name, self.command, self.cores, self.process = name, command, cores, None

    def ask(self, *words):
        """The fields of the answer after "ok". Raises what it says instead."""
        if self.process is None:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                            preexec_fn=lambda: os.sched_setaffinity(0, self.cores))  # fmt: skip
        try:
            self.process.stdin.write("\t".join(words) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().rstrip("\n").split("\t")
        except BrokenPipeError:
            answer = [""]
        if answer[0] == "":
            self.process.wait()
            answer = ["error", f"the process ended with status {self.process.returncode}"]
            self.process = None
        if answer[0] != "ok":
            raise RuntimeError(f"{self.name}: {' '.join(answer[1:])}")
        return answer[1:]


TOLERANCES = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}  # of elements, by the dtype of the case


def difference(ours, theirs, case):
    """What two libraries' results differ in, or None. Where rounding decides, one element of ten may differ."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, not {len(theirs)}"
    for a, b in zip(ours, theirs):
        (head, values), (other, expected) = a.split(" |"), b.split(" |")
        if head != other and (case.exact or head.split(" ", 1)[1] != other.split(" ", 1)[1]):
            return f"{head}, not {other}"
        pairs = [(float(x), float(y)) for x, y in zip(values.split(), expected.split())]
        finite = [abs(y) for _, y in pairs if math.isfinite(y)]
        scale = max(statistics.fmean(finite) if finite else 0, 1e-2)
        near = lambda x, y: x == y or abs(x - y) <= TOLERANCES.get(case.dtype, 0) * max(abs(x), abs(y), scale)
        wrong = [(x, y) for x, y in pairs if not (near(x, y) or math.isnan(x) and math.isnan(y))]
        if case.exact and len(wrong) > len(pairs) / 10:
            return f"{wrong[0][0]:g}, not {wrong[0][1]:g} ({head})"
    return None


# What PyTorch says of what it cannot do.
LACKING = re.compile("not implemented for|view size is not compatible|expected scalar type")


def measure(case, servers, flags):
    """The line of results of a case."""
    line = {field: getattr(case, field) for field in ("name", "group", "size", "dtype", "layout", "mode")}
    times = {name: [] for name in servers}
    try:
        results = {name: server.ask(case.request) for name, server in servers.items()}
        if flags.peer:
            wrong = difference(results["reel"], results[flags.peer], case)
            if wrong:
                return line | {"error": f"results differ: {wrong}"}
        end = time.monotonic() + flags.max_secs
        for i in range(flags.rounds):
            if i and time.monotonic() > end:
                break
            for name, server in servers.items():
                cpu, wall = server.ask("time", str(flags.secs))
                times[name].append(float(wall if flags.threads > 1 else cpu))
    except RuntimeError as error:
        return line | {"lacking" if LACKING.search(str(error)) else "error": str(error)}
    line["reel"] = statistics.median(times["reel"])
    if flags.peer:
        ratios = sorted(a / b for a, b in zip(times["reel"], times[flags.peer]))
        line |= {"peer": statistics.median(times[flags.peer]), "ratio": statistics.median(ratios), "low": ratios[0],
                 "high": ratios[-1]}  # fmt: skip
    return line


def clear(before, case, servers):
    """Frees the memory of a large case, if this one is not of its operands."""
    if before and (before.size == SIZES[-1] or before.group == "models") and before.operands != case.operands:
        for server in servers.values():
            server.ask("clear")


def selected(flags):
    cases = [case for case in itertools.chain(op_cases(), model_cases()) if re.search(flags.match, case.name)]
    if flags.small:
        cases = [case for case in cases if case.size == SIZES[0]]
    return [case for case in cases if zlib.crc32(case.name.encode()) % flags.every == 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="reel's side")
    parser.add_argument("--peer", choices=["torch"], help="measure PyTorch, too ($PYTHON or python3)")
    parser.add_argument("--match", default="", metavar="RE", help="only cases whose names this regular expression finds")
    parser.add_argument("--every", type=int, default=1, metavar="K", help="a sample: one of K cases")
    parser.add_argument("--small", action="store_true", help="only 4 KiB")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--secs", type=float, default=0.005, help="of each measurement of a round")
    parser.add_argument("--max-secs", type=float, default=2, help="of all rounds of a case, but of the first")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", required=True, metavar="FILE", help="results; its first line says where and when")
    parser.add_argument("--resume", action="store_true", help="leave out the cases that FILE has without an error")
    parser.add_argument("--worst", type=int, default=40, metavar="N", help="how many cases to print")
    parser.add_argument("--write", metavar="FILE.md", help="write the summary and the cases above 1.05")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    flags = parser.parse_args()
    cases = selected(flags)
    if flags.list:
        print(*(case.name for case in cases), sep="\n")
        return 0
    cores = sorted(os.sched_getaffinity(0))[-flags.threads :]
    servers = {"reel": Server("reel", [flags.program, str(flags.threads)], cores)}
    if flags.peer:
        side = str(HERE / flags.peer / "breadth.py")
        servers[flags.peer] = Server(flags.peer, [os.environ.get("PYTHON", "python3"), side, str(flags.threads)], cores)
    done = {line["name"] for line in breadth_report.read(flags.json)[1] if "error" not in line} if flags.resume else set()
    about = {"threads": flags.threads, "rounds": flags.rounds}
    if flags.peer:
        about["peer"] = servers[flags.peer].ask("version")[0]
    if flags.match or flags.small or flags.every > 1:
        chosen = [f"--match '{flags.match}'"] * bool(flags.match) + ["--small"] * flags.small
        about["sample"] = f"A sample: `{' '.join(chosen + [f'--every {flags.every}'] * (flags.every > 1))}`."
    start, before = time.monotonic(), None
    with open(flags.json, "a", encoding="utf-8") as file:
        file.write(json.dumps(about) + "\n")
        for i, case in enumerate(cases):
            if case.name in done:
                continue
            clear(before, case, servers)
            before = case
            line = measure(case, servers, flags)
            file.write(json.dumps(line) + "\n")
            file.flush()
            if "error" in line:
                print(f"{case.name}: {line['error']}", file=sys.stderr)
            elif i % 500 == 0:
                print(f"{i} of {len(cases)} cases, {time.monotonic() - start:.0f} s", file=sys.stderr)
    return breadth_report.report(flags.json, flags.worst, flags.write)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        print("breadth:", error, file=sys.stderr)
        sys.exit(2)
