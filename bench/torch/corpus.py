"""bench/corpus.h: the same examples for all libraries."""
import gzip
import os
import sys

from bench import Random, check_loss, constants

TREE, TAGGER, NER = (constants("corpus.h", name) for name in ("tree", "tagger", "ner"))


def read_lines(folder, names):
    """The lines of the first of these files that is there, plain or with ".gz"; none if there is none."""
    for name in names:
        for suffix, opener in (("", open), (".gz", gzip.open)):
            path = os.path.join(folder, name + suffix)
            if os.path.exists(path):
                with opener(path, "rt", encoding="utf-8", newline="\n") as file:
                    return file.read().split("\n")
    return []


def is_real(options, found, what):
    if found:
        return True
    if options.data:
        raise RuntimeError(f"no {what} in {options.data}")
    print(f"no --data, random {what} are used", file=sys.stderr)
    return False


def thin_out(examples, wanted):
    """So many of them, spread evenly."""
    if wanted < len(examples):
        n = len(examples)
        for i in range(wanted):
            j = i * n // wanted
            examples[i], examples[j] = examples[j], examples[i]
        del examples[wanted:]


class Ids:
    """Words are counted from 1; 0 are unknown ones."""

    def __init__(self, first=1):
        self.ids, self.first = {}, first

    def add(self, name):
        return self.ids.setdefault(name, self.first + len(self.ids))

    def __len__(self):
        return self.first + len(self.ids)


# ---- trees -----------------------------------------------------------------------------------------------------------


class Tree:
    """Nodes in postorder, the root last. A leaf has no children, left < 0, but a word."""

    def __init__(self):
        self.left, self.right, self.label, self.word = [], [], [], []

    def add(self, left, right, label, word):
        self.left.append(left), self.right.append(right), self.label.append(label), self.word.append(word)
        return len(self.label) - 1


def read_tree(line, ids):
    tree, at = Tree(), 0

    def node():
        nonlocal at
        at = line.index("(", at) + 1
        label = int(line[at])
        at += 1
        while line[at] == " ":
            at += 1
        left = right = word = -1
        if line[at] == "(":
            left = node()
            right = node()
        else:
            word = ids.add(line[at : line.index(")", at)])
        at = line.index(")", at) + 1
        return tree.add(left, right, label, word)

    node()
    return tree


def random_node(tree, random, leaves, words):
    left = right = word = -1
    if leaves == 1:
        word = random.below(words)
    else:
        first = 1 + random.below(leaves - 1)
        left = random_node(tree, random, first, words)
        right = random_node(tree, random, leaves - first, words)
    return tree.add(left, right, random.below(TREE["kClasses"]), word)


class Treebank:
    def __init__(self, options):
        ids = Ids()
        lines = read_lines(options.data, ["sst/train.txt", "train.txt"])
        self.trees = [read_tree(line, ids) for line in lines if line]
        self.words = len(ids)
        self.real = is_real(options, len(self.trees), "trees")
        if not self.real:
            words, random = 16000, Random(7)
            for _ in range(max(options.trees, 1000)):
                self.trees.append(Tree())
                random_node(self.trees[-1], random, 4 + random.below(31), words)
            self.words = words + 1
        thin_out(self.trees, options.trees)
        self.nodes = sum(len(tree.label) for tree in self.trees)

    def check_loss(self, loss):
        return check_loss(loss, TREE["kFirstPassLoss"] if self.real and len(self.trees) == 300 else None)


# ---- sentences -------------------------------------------------------------------------------------------------------


def read_tokens(lines):
    sentences = [[]]
    for line in lines:
        columns = line.split("\t") if line.count("\t") == 9 else line.split()
        if not columns:
            if sentences[-1]:
                sentences.append([])
        elif line.startswith("#"):
            pass
        elif len(columns) == 10:
            if not set(".-") & set(columns[0]):
                sentences[-1].append((columns[1], columns[3]))
        else:
            sentences[-1].append((columns[0], columns[-1]))
    if not sentences[-1]:
        sentences.pop()
    return sentences


def random_tokens():
    sentences, random = [], Random(11)
    for _ in range(2000):
        length = 5 + random.below(40)
        sentences.append([])
        for _ in range(length):
            # In this order, as g++ evaluates what stands in emplace_back's parentheses from the right.
            tag = random.below(9)
            word = random.below(1 + random.below(8000))
            sentences[-1].append((f"w{word}", f"t{tag}"))
    return sentences


class Tagged:
    """Words that occur only once are unknown."""

    def __init__(self, options, files):
        sentences = read_tokens(read_lines(options.data, files))
        self.real = is_real(options, len(sentences), "sentences")
        if not self.real:
            sentences = random_tokens()
        counts = {}
        for sentence in sentences:
            for word, _ in sentence:
                counts[word] = counts.get(word, 0) + 1
        words, tags = Ids(), Ids(0)
        for sentence in sentences:
            for word, tag in sentence:
                if counts[word] > 1:
                    words.add(word)
                tags.add(tag)
        thin_out(sentences, options.sentences)
        self.sentences = [
            ([words.ids.get(word, 0) for word, _ in sentence], [tags.ids[tag] for _, tag in sentence])
            for sentence in sentences
        ]
        self.words, self.tags = len(words), len(tags)
        self.tokens = sum(len(words) for words, _ in self.sentences)

    def check_loss(self, loss, expected):
        return check_loss(loss, expected if self.real and len(self.sentences) == 320 else None)
