"""Makes tests/data/tokenizers/: small tokenizers with the pipelines of published families, and what the
`tokenizers` library (PyPI, 0.23.3) makes of texts with each. Run once; the tests read the files and need no Python.

    make_vectors.py REPOSITORY

The published vocabularies are large and not ours to copy: these are trained on the repository's own sources and on
made-up words of many scripts. The regexes, normalizers, post-processors and flags are the published ones.
"""
import glob
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA_3 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES)
QWEN_3_5 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES)
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
TEKKEN = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*|\p{{N}}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES)
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{CONTRACTIONS}?|"
         rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{CONTRACTIONS}?|\p{{N}}{{1,3}}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES)


def split(regex):
    return pre_tokenizers.Split(Regex(regex), "isolated", invert=False)


def byte_level(use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=use_regex)


def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def ordinary(*contents, normalized=False):
    return [AddedToken(content, special=False, normalized=normalized) for content in contents]


FAMILIES = {
    "llama3": dict(pre=[split(LLAMA_3), byte_level()], ignore_merges=True, bos="<|begin_of_text|>",
                   added=special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                 "<|eot_id|>")),
    "granite4": dict(pre=[split(LLAMA_3), byte_level()],
                     added=special("<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>", "<|fim_prefix|>")
                     + ordinary("<tool_call>", "</tool_call>")),
    "qwen3_5": dict(pre=[split(QWEN_3_5), byte_level()], nfc=True,
                    added=special("<|endoftext|>", "<|im_start|>", "<|im_end|>")
                    + ordinary("<tool_call>", "</tool_call>", "<think>", "</think>")
                    + ordinary("e\u0301!", normalized=True)),
    "tekken": dict(pre=[split(TEKKEN), byte_level()], ignore_merges=True, bos="<s>",
                   added=special("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<SPECIAL_10>", "<SPECIAL_1>")),
    "o200k": dict(pre=[split(O200K), byte_level()], bos="<|startoftext|>", eos="<|endoftext|>",
                  added=special("<|startoftext|>", "<|endoftext|>", "<|end|>")),
    "gpt2": dict(pre=[pre_tokenizers.Split(Regex(r"[0-9][0-9][0-9]"), "isolated"), byte_level(use_regex=True)],
                 added=special("<|endoftext|>") + ordinary(">>TITLE<<", normalized=True)),
}

SCRIPTS = [(0x41, 0x5B), (0x61, 0x7B), (0xC0, 0x180), (0x370, 0x3D0), (0x400, 0x460), (0x5D0, 0x5EB), (0x620, 0x660),
           (0x900, 0x970), (0xE01, 0xE5B), (0x1E00, 0x1F00), (0x3041, 0x3097), (0x4E00, 0x4F00), (0xAC00, 0xAC80),
           (0x1F600, 0x1F640), (0x300, 0x340)]


def corpus(root):
    chance = random.Random(1)
    texts = [open(path, encoding="utf-8").read() for path in sorted(glob.glob(f"{root}/docs/*.md"))]
    texts += [open(path, encoding="utf-8").read() for path in sorted(glob.glob(f"{root}/engine/*/*.cc"))[:12]]
    for first, last in SCRIPTS:
        words = ["".join(chr(chance.randrange(first, last)) for _ in range(chance.randint(1, 6))) for _ in range(40)]
        texts.append(" ".join(chance.choice(words) for _ in range(1500)))
    return texts


def make_tokenizer(family, texts):
    tokenizer = Tokenizer(models.BPE(ignore_merges=family.get("ignore_merges", False)))
    if family.get("nfc"):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(family["pre"])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=True, trim_offsets=True, use_regex=True)
    trainer = trainers.BpeTrainer(vocab_size=1400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    for token in family["added"]:
        tokenizer.add_special_tokens([token]) if token.special else tokenizer.add_tokens([token])
    around = [family.get("bos"), "$A", family.get("eos")]
    around = [part for part in around if part]
    parts = [processors.ByteLevel(add_prefix_space=True, trim_offsets=False, use_regex=True)]
    if len(around) > 1:
        names = [part for part in around if part != "$A"]
        parts.append(processors.TemplateProcessing(single=" ".join(around), pair="$A $B",
                                                   special_tokens=[(n, tokenizer.token_to_id(n)) for n in names]))
    tokenizer.post_processor = processors.Sequence(parts) if len(parts) > 1 else parts[0]
    return tokenizer


FIXED = ["", " ", "  ", "\n", "\r\n\r\n", " \n \n x", "a", "Hello, world!", "I'm we'RE it'ſ you'K 'LL'd",
         "1234567 12 0.5 ½ ²³ Ⅷ ٣٤٥", "\u00e9 e\u0301 e\u0301! \u00e9!", "\u1100\u1161\u11a8 \uac01",
         "\u212b \u2126 \u0340",
         "a\u0315\u0300\u05ae\u0062", "q\u0307\u0323", "\ufeffbom", "nul\u0000nul", "\u200d\u200b\u2060",
         "\ufdd0\uffff\U0010ffff",
         "👩‍👩‍👧‍👦 🇩🇪 ❤️", "<|im_start|>user\n<|im_end|>", "<|eot_id|><|begin_of_text|>", "<|end_of_text|",
         "<<|im_end|>|>",
         "<s></s>[INST]x[/INST]", "<SPECIAL_1><SPECIAL_10><SPECIAL_100>", "<think>a</think> <tool_call>",
         ">>TITLE<<x>>TITLE<<",
         "<|startoftext|> <|endoftext|><|end|>", "<|start_of_role|>system<|end_of_role|>", "\t\tif (x) {\n\t}\n\n\n",
         "a" * 300, "ab" * 250, "aA" * 200, " " * 200 + "x", "!" * 150, "\n" * 120, "e\u0301" * 100, "字" * 150,
         "x\u0301\u0302" * 60, "don't DON'T Don'T", "camelCaseABCDef ǅeta ªº ʰx", "/path/to//\n//x", "١٢٣٤ ⅣⅤ",
         "\u3000\u3000x\u2028\u2029y\u0085z\u00a0", "ß ẞ ﬁ ﬆ 'ﬆ", "प्रौद्योगिकी हिन्दी", "ภาษาไทย", "שָׁלוֹם",
         "مَرْحَبًا"]


def random_text(chance, tokens):
    pieces = []
    for _ in range(chance.randint(1, 12)):
        kind = chance.random()
        if kind < 0.15:
            token = chance.choice(tokens)
            pieces.append(token if chance.random() < 0.7 else token[:chance.randint(1, len(token))])
        elif kind < 0.3:
            pieces.append(chance.choice([" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", " \n ", "'", "'s", "'S"]))
        elif kind < 0.7:
            first, last = chance.choice(SCRIPTS)
            pieces.append("".join(chr(chance.randrange(first, last)) for _ in range(chance.randint(1, 8))))
        elif kind < 0.8:
            signs = "0123456789.,;:-_/\\|<>[]{}()'\""
            pieces.append("".join(chance.choice(signs) for _ in range(chance.randint(1, 8))))
        else:
            code_points = [chance.randrange(0x110000) for _ in range(chance.randint(1, 4))]
            pieces.append("".join(chr(c) for c in code_points if not 0xD800 <= c < 0xE000))
    return "".join(pieces)


def fnv(ids):
    value = 0xCBF29CE484222325
    for one in ids:
        for shift in (0, 8, 16, 24):
            value = ((value ^ (one >> shift & 0xFF)) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def every_character(between, step, offset):
    code_points = (c for c in range(offset, 0x110000, step) if not 0xD800 <= c < 0xE000)
    return "".join(chr(c) + between for c in code_points)


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n" for line in lines)


def make_vectors(name, tokenizer, family):
    chance = random.Random(name)
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.encode_special_tokens = True
    tokens = [str(token.content) for token in family["added"]]
    texts = FIXED + [random_text(chance, tokens) for _ in range(250)]
    encodings = [{"text": text, "ids": tokenizer.encode(text).ids,
                  "plain": plain.encode(text, add_special_tokens=False).ids} for text in texts]
    size = tokenizer.get_vocab_size()
    lists = [[chance.randrange(size) for _ in range(chance.randint(0, 12))] for _ in range(150)]
    decodings = [{"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                  "without": tokenizer.decode(ids, skip_special_tokens=True)} for ids in lists]
    made = []
    for between, step in [("", 1), (" ", 3), ("a", 5), ("\u0301", 7), ("1\n", 11), ("'s", 13)]:
        ids = plain.encode(every_character(between, step, step // 2), add_special_tokens=False).ids
        made.append({"between": between, "step": step, "offset": step // 2, "count": len(ids), "fnv": fnv(ids)})
    for text, times in [("a", 1_000_000), (" ", 300_000), ("\n", 300_000), ("A\u0301", 300_000), ("<|", 300_000)]:
        ids = plain.encode(text * times, add_special_tokens=False).ids
        made.append({"repeat": text, "times": times, "count": len(ids), "fnv": fnv(ids)})
    return encodings, decodings, made


def main():
    root = sys.argv[1]
    texts = corpus(root)
    for name, family in FAMILIES.items():
        folder = f"{root}/tests/data/tokenizers/{name}"
        os.makedirs(folder, exist_ok=True)
        tokenizer = make_tokenizer(family, texts)
        with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as file:
            file.write(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
        encodings, decodings, made = make_vectors(name, tokenizer, family)
        write_lines(f"{folder}/encode.jsonl", encodings)
        write_lines(f"{folder}/decode.jsonl", decodings)
        write_lines(f"{folder}/made.jsonl", made)


main()
