"""What the transformers package's BertTokenizer makes of texts.

    word_piece.py                    writes word_piece.json
    word_piece.py SEED COUNT FILE    writes another such file, of so many random texts

The file has a vocabulary and cases: a text (perhaps with a second one and max_length), options, and the tokens. All is
in ASCII; other characters are escaped.
"""
import json
import pathlib
import random
import sys
import unicodedata

import tokenizers
from transformers import BertTokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
OPTIONS = [{"lower_case": lower, "strip_accents": strip, "split_chinese": chinese}
           for lower in [True, False] for strip in [None, True, False] for chinese in [True, False]]


def tokenizer(vocabulary, options):
    return BertTokenizer(vocab={piece: i for i, piece in enumerate(vocabulary)}, do_lower_case=options["lower_case"],
                         strip_accents=options["strip_accents"], tokenize_chinese_chars=options["split_chinese"])


def answered(bert, case):
    how = {"split_special_tokens": not case.get("read_specials", True)}
    if "max_length" not in case:
        return case | {"tokens": bert.tokenize(case["text"], **how)}
    pair = [[case["second"]]] if "second" in case else []  # in lists, where a second text may be empty
    encoded = bert([case["text"]], *pair, truncation="longest_first", max_length=case["max_length"], **how)
    return case | {"tokens": bert.convert_ids_to_tokens(encoded["input_ids"][0])}


def write(path, vocabulary, cases):
    tokenizers = [(options, tokenizer(vocabulary, options)) for options in OPTIONS]
    cases = [answered(next(bert for options, bert in tokenizers if options.items() <= case.items()), case)
             for case in cases]
    path.write_text(json.dumps({"vocabulary": vocabulary, "cases": cases}, separators=(",", ":"))
                    .replace('{"text"', '\n{"text"') + "\n")


WORDS = """un ##believ ##able believe the cat sat ##s , . ! ? ' - [ ] # ## $ a ##a b ##b ab c ##c cafe café caf ##é
elan Elan istanbul i ##i 中 文 ##文 中文 가 ᄀ ##ᅡ ß ##ß ss straße σ ##ς ##σ 1 ##1 12 ##2 ² ¿ … sep cls SEP
""".split()
TEXTS = [
    "", " ", "\t\r\n", "the cats sat.", "unbelievable", "Unbelievably", "The CAT, the cat!", "don't--stop",
    "caf\u00e9 cafe\u0301 CAF\u00c9", "\u00c9lan \u0130stanbul I\u0307stanbul \u0131", "\u4e2d\u6587 a\u4e2db \u4e2d\u6587\u4e2d",
    "\uac00 \u1100\u1161", "\u00df stra\u00dfe STRASSE", "\u03a3\u03c2 \u03a3", "a\u0000b a\u0001b a\ufffdb a\u007fb",
    "a\u00a0b a\u2028b a\u3000b a\u200bb a\u00adb a\u000bb", "\ufeffthe cat", "a" * 100, "a" * 101, "a" * 99 + "b c",
    "a" * 50 + "," + "a" * 60, "\u4e2d" * 120, "\u00e9" * 101, "[SEP]", "the[SEP]cat", "[sep] [ SEP ] [[SEP]]",
    "[MASK][MASK] [CLS] [PAD] [UNK]", "[SEP", "a$b+c=d", "1.5\u00b2 12", "\u00bfa\u2026", "\ud83d\ude00 a\ud83d\ude00b".encode(
        "utf-16", "surrogatepass").decode("utf-16"), "##a #a a##b", "\u0301", "a\u0301\u0327", "\uf900", "\ue000a", "q", "cq a",
]
LONG = "the cat sat on the cat, unbelievable cats"


def golden():
    plain = {"lower_case": True, "strip_accents": None, "split_chinese": True}
    cases = [{"text": text} | plain for text in TEXTS]
    cases += [{"text": text} | options for options in OPTIONS[1:]
              for text in ["Caf\u00e9 \u4e2d\u6587 \u0130", "\u00c9lan [SEP] a\u4e2db"]]
    cases += [{"text": text, "read_specials": False} | plain for text in ["the[SEP]cat", "[MASK]", "[UNK] a"]]
    cases += [{"text": LONG, "max_length": n} | plain for n in [3, 4, 5, 12, 16, 17, 18, 512]]
    cases += [{"text": a, "second": b, "max_length": n} | plain for a, b in [(LONG, "the cat"), ("cat", LONG), (LONG, LONG),
              ("", "a"), ("a b c", "")] for n in [3, 4, 5, 6, 9, 10, 11, 20, 64]]
    write(pathlib.Path(__file__).parent / "word_piece.json", SPECIALS + WORDS, cases)


def any_character(r):
    """Of a kind that the tokenizer treats in its own way. Not what newer versions of Unicode have changed."""
    kinds = [(0x20, 0x7f), (0, 0x20), (0x80, 0x250), (0x250, 0x600), (0x300, 0x370), (0x600, 0x1100), (0x1e00, 0x2070),
             (0x2000, 0x2c00), (0x3000, 0x3400), (0x3400, 0xa000), (0xac00, 0xd7a4), (0xf900, 0x10000), (0x10000, 0x11000),
             (0x1d000, 0x1d800), (0x20000, 0x2a6e0), (0x2f800, 0x2fa20)]
    while True:
        c = chr(r.randrange(*r.choice(kinds)))
        if unicodedata.ucd_3_2_0.category(c) == unicodedata.category(c) not in ["Cn", "Cs"]:
            return c


def random_text(r):
    return "".join(r.choice([" ", "a", "B", "'", r.choice(SPECIALS), "\u0301", any_character(r), any_character(r),
                             any_character(r)]) for _ in range(r.randrange(40)))


# Before 0.23.3 tokenizers took other tokens off pairs that are too long.
TRUNCATES_PAIRS = tuple(int(part) for part in tokenizers.__version__.split(".")[:3]) >= (0, 23, 3)


def random_cases(seed, count, path):
    r = random.Random(seed)
    cases = []
    for _ in range(count):
        case = {"text": random_text(r)} | r.choice(OPTIONS) | {"read_specials": r.random() < 0.7}
        if r.random() < 0.3 and TRUNCATES_PAIRS:
            case |= {"second": random_text(r)}
        if "second" in case or r.random() < 0.1:
            case |= {"max_length": r.randrange(3, 60)}
        cases.append(case)
    # With every character as a piece little is unknown; a third of the longer ones is left to chance.
    pieces = set()
    for case in cases:
        normalizer = tokenizer(SPECIALS, case).backend_tokenizer.normalizer
        normal = normalizer.normalize_str(case["text"] + case.get("second", ""))
        pieces.update(c for c in normal)
        pieces.update("##" + c for c in normal)
        pieces.update(normal[i:i + 3] for i in range(0, len(normal), 5))
    pieces = sorted(p for p in pieces if p.strip() == p and len(p.split()) == 1 and p not in SPECIALS)
    write(path, SPECIALS + pieces, cases)


if len(sys.argv) == 1:
    golden()
else:
    random_cases(int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3]))
