"""Prints what bench/breadth.py measured: the share of cases that are as fast as PyTorch, and those that are not."""
import collections
import json
import math
import pathlib
import re

HERE = pathlib.Path(__file__).parent
EQUAL, SLOW = 1.05, 1.5  # what counts as as fast, and what needs a reason


def read(path):
    """What the lines say that are no cases: where, when and how; and the cases, of each the last."""
    about, cases = {}, {}
    if pathlib.Path(path).exists():
        for text in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "name" in line:
                cases[line["name"]] = line
            else:
                about |= line
    return about, list(cases.values())


def reasons():
    """The lines "REGULAR EXPRESSION | REASON" of breadth_reasons.txt."""
    lines = (HERE / "breadth_reasons.txt").read_text(encoding="utf-8").splitlines()
    return [tuple(map(str.strip, line.split(" | ", 1))) for line in lines if line and not line.startswith("#")]


def reason(name, known):
    return next((why for pattern, why in known if re.search(pattern, name)), "")


def share(count, total):
    return f"{100 * count / total:.1f} %"


def summary(cases):
    """A table of shares for each field."""
    lines = []
    for field in ("group", "dtype", "layout", "size", "mode"):
        parts = collections.defaultdict(list)
        for case in cases:
            parts[case[field] or "models"].append(case["ratio"])
        if len(parts) == 1:
            continue
        lines += ["", f"| {field} | cases | median | ≤ {EQUAL} | > {SLOW} |", "|---|---:|---:|---:|---:|"]
        for part, ratios in [("all", [case["ratio"] for case in cases]), *parts.items()]:
            equal, slow = sum(r <= EQUAL for r in ratios), sum(r > SLOW for r in ratios)
            ratios.sort()
            lines.append(f"| {part} | {len(ratios):,} | {ratios[len(ratios) // 2]:.2f} | {share(equal, len(ratios))} | "
                         f"{share(slow, len(ratios))} |")  # fmt: skip
    return lines


def time(seconds):
    """Three digits, with a unit."""
    scale, unit = next((s, u) for s, u in ((1, "s"), (1e-3, "ms"), (1e-6, "µs"), (0, "ns")) if seconds >= s)
    digits = seconds / (scale or 1e-9)
    return f"{digits:.{max(0, 2 - int(math.log10(max(digits, 1))))}f} {unit}"


def table(cases, known):
    lines = ["| case | ratio | spread | reel | PyTorch | reason |", "|---|---:|---|---:|---:|---|"]
    for case in cases:
        lines.append(f"| {case['name']} | {case['ratio']:.2f} | {case['low']:.2f} – {case['high']:.2f} | "
                     f"{time(case['reel'])} | {time(case['peer'])} | {reason(case['name'], known)} |")  # fmt: skip
    return lines


def markdown(about, cases, failed, slower, known):
    large = [case for case in cases if case["size"] in ("1MiB", "64MiB")]
    unnamed = sum(case["ratio"] > SLOW and not reason(case["name"], known) for case in large)
    above = sum(case["ratio"] <= EQUAL for case in large)
    threads = about.get("threads", 1)
    return "\n".join([
        "# Ops and models beside PyTorch",
        "",
        "What [`bench/run breadth`](../README.md#ops-and-models-beside-pytorch) wrote: reel's time divided by PyTorch's,",
        f"{threads} thread{'s' * (threads > 1)} of {about['machine']}, PyTorch {about.get('peer', '')}, {about['date']},",
        f"commit {about['commit']}. {about.get('sample', '')}".rstrip(),
        "",
        f"Of {len(large):,} calls with 1 MiB or 64 MiB {share(above, max(len(large), 1))} are at most {EQUAL}, and",
        f"{unnamed} are above {SLOW} without a reason that is named.",
        *summary(cases),
        "",
        f"## Above {EQUAL}",
        "",
        *table(slower, known),
        *(["", "## Not measured", ""] + [f"- {case['name']}: {case['error']}" for case in failed] if failed else []),
        "",
    ])  # fmt: skip


def report(path, worst, write):
    """Prints the worst cases, and writes the page if one is named. The status is 1 if a case could not be measured."""
    about, lines = read(path)
    failed = [line for line in lines if "error" in line]
    measured = [line for line in lines if "reel" in line]
    compared = [line for line in measured if "ratio" in line]
    known = reasons()
    if not compared:
        for line in measured:
            print(f"{line['name']:<60} {time(line['reel'])}")
        return 1 if failed or not measured else 0
    slowest = sorted(compared, key=lambda line: -line["ratio"])
    print(*table(slowest[:worst], known), *summary(compared), sep="\n")
    if failed:
        print(f"\n{len(failed)} cases could not be measured; the first: {failed[0]['name']}: {failed[0]['error']}")
    if write:
        slower = [line for line in slowest if line["ratio"] > EQUAL]
        pathlib.Path(write).write_text(markdown(about, compared, failed, slower, known), encoding="utf-8")
    return 1 if failed else 0
