"""Prepare a target's tokenizer folder for the converter: copy, make it loadable, prove that the ids did not move.

The converter loads the folder through transformers' AutoTokenizer. A class name that only transformers v5 knows
is replaced; the files are otherwise kept byte for byte. Whether the class that is loaded in the end cuts text as
tokenizer.json says is not assumed but tried.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from scripts.core import BuildError, Report, parser, read_json, run, say, sha256_file
from scripts.fetch import NEEDED, TOKENIZER_FILES
from scripts.vocab_files import Vocab, chat_templates, read_vocab
from scripts.vocab_settings import LOADABLE_CLASS, V5_CLASS, edit_settings

REQUIRED = NEEDED["target"]
OPTIONAL = tuple(name for name in TOKENIZER_FILES if name not in REQUIRED)
"""Copied when present. Weights and code are never copied."""

PROBES = {
    "Hindi": "नमस्ते दुनिया, यह एक छोटी सी परीक्षा है। क्षेत्रों में",
    "Khmer": "កាន់តែពិសេសអាច សួស្តីពិភពលោក",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 😶‍🌫️ 👍🏽 ❤️",
    "digits": "3 33 333 3333 1,234,567.89 0x1F 3.14e-10 १२३ ٣٤٥",
    "code": "def f(x):\r\n\treturn x != None  # ok\r\n\r\n\n\n    if (a && b) {\t\t}\n",
    "Chinese": "我想在苹果公司工作，1314151天～《你好》",
    "Arabic": "اَلسَّلَامُ عَلَيْكُمْ وَرَحْمَةُ ٱللَّهِ",
    "contractions": "I've been 'told he's there, 'RE you sure? We'Ve a'lL it'd",
    "composed": "e\u0301 A\u030a n\u0303o \ufb01 Ⅷ",
    "spaces": "  a   b\u00a0c\u3000d \t \n \n\n e  ",
}
"""Texts whose ids must not depend on the loader: scripts with combining marks, joiners, line ends, case."""


def _read_source(source: Path, report: Report) -> dict[str, Any]:
    """Check that the folder has what the converter needs; return tokenizer_config.json."""
    for name in REQUIRED:
        if not (source / name).is_file():
            raise BuildError(f"{name} is missing", source, "fetch it with the tokenizer; the converter needs it")
    settings: Any = read_json(source / "tokenizer_config.json")
    config: Any = read_json(source / "config.json")
    for name, value in (("tokenizer_config.json", settings), ("config.json", config)):
        if not isinstance(value, dict):
            raise BuildError("not a JSON object", source / name, "delete the file and fetch it again")
    templates = chat_templates(source)
    if not templates:
        raise BuildError(
            "no chat template: neither chat_template.jinja nor a chat_template key",
            source,
            "use a revision that has one; drafts are measured on chats",
        )
    differ = len({template.sha256 for template in templates}) > 1
    listed = ", ".join(template.source for template in templates)
    report.check("chat template", True, f"warning: different templates in {listed}" if differ else f"in {listed}")
    remote = [
        name for name, value in (("config.json", config), ("tokenizer_config.json", settings)) if "auto_map" in value
    ]
    detail = f"warning: {' and '.join(remote)} point to code by auto_map; it was neither copied nor executed"
    report.check("remote code", True, detail if remote else "none asked for")
    return dict(settings)


def _copy(source: Path, out: Path, report: Report) -> list[dict[str, Any]]:
    """Copy the tokenizer's files, edit the settings, and return a line of figures for each file."""
    files = []
    for name in itertools.chain(REQUIRED, OPTIONAL):
        if not (source / name).is_file():
            continue
        if name == "tokenizer_config.json":
            # Bytes in, bytes out: reading as text would translate line ends.
            text, notes = edit_settings((source / name).read_bytes().decode("utf-8"), source / name)
            (out / name).write_bytes(text.encode("utf-8"))
            report.check("settings", True, "; ".join(notes) or "loadable as they are, kept byte for byte")
        else:
            shutil.copyfile(source / name, out / name)
        before, after = sha256_file(source / name), sha256_file(out / name)
        figures = {"name": name, "bytes": (out / name).stat().st_size, "sha256": after}
        files.append({**figures, "source_sha256": before, "changed": before != after})
    return files


def _load_raw(path: Path) -> tokenizers.Tokenizer:
    try:
        raw = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception for whatever it cannot read
        raise BuildError(
            f"tokenizer.json cannot be loaded: {error}"[:300], path, "delete the file and fetch it again"
        ) from error
    raw.no_truncation()
    raw.no_padding()
    return raw


def _load_auto(folder: Path, name: str | None, source: Path) -> Any:
    """Load the folder as the converter will: AutoTokenizer, without code of others and without the network."""
    # Imported here: it takes seconds, and what only edits or reads files does not need it.
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except Exception as error:  # whatever transformers and what it imports raise
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise BuildError(
            f"AutoTokenizer cannot load the folder (tokenizer_class {name}): {text}",
            source,
            "use a revision saved with a class that transformers has",
        ) from error


def _fragment(raw: tokenizers.Tokenizer, text: str, at: int) -> str:
    """The text around the token number ``at``, up to 16 characters before and after it."""
    offsets = raw.encode(text, add_special_tokens=False).offsets
    start, end = offsets[min(at, len(offsets) - 1)] if offsets else (0, 0)
    return text[max(0, start - 16) : end + 16]


def first_difference(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first place where two lists of ids differ, or None when they are equal."""
    return next((at for at, pair in enumerate(itertools.zip_longest(one, other)) if pair[0] != pair[1]), None)


def _difference_of_maps(expected: dict[int, str], loaded: dict[int, str], who: str) -> str | None:
    """The first three ids of two vocabularies that do not have the same string, as text."""
    ids = sorted(key for key in expected.keys() | loaded.keys() if expected.get(key) != loaded.get(key))
    if not ids:
        return None
    shown = "; ".join(f"id {key}: files say {expected.get(key)!r}, {who} has {loaded.get(key)!r}" for key in ids[:3])
    return shown + (f"; and {len(ids) - 3} more" if len(ids) > 3 else "")


def probe(folder: Path, name: str | None, vocab: Vocab, report: Report) -> str:
    """Prove that AutoTokenizer gives the ids that tokenizer.json defines.

    Compared are the whole vocabulary, the ids of every probe text, and every added token alone and in a sentence.

    Args:
        folder: the prepared folder.
        name: its ``tokenizer_class``, for messages.
        vocab: what the files say; its folder is the one that messages name.
        report: takes the checks and the figures ``probe_tokens`` and ``added_tokens``.

    Returns:
        The name of the class that AutoTokenizer loaded.

    Raises:
        BuildError: a file cannot be loaded, or ids differ; names the class, the text and the first ids that differ.
    """
    where = vocab.folder
    raw, auto = _load_raw(where / "tokenizer.json"), _load_auto(folder, name, where)
    import transformers

    loaded = type(auto).__name__
    who = f"{name or 'the class of the model type'} (loaded as {loaded} by transformers {transformers.__version__})"
    do = f"use a revision saved with {V5_CLASS} or {LOADABLE_CLASS}; a class name is not rewritten by guess"

    difference = _difference_of_maps(vocab.tokens, {key: text for text, key in auto.get_vocab().items()}, who)
    report.require("loaded vocabulary", difference is None, difference or f"{len(vocab.tokens)} ids", where, do)

    total = 0
    known = raw.get_added_tokens_decoder()
    sentences = [(text, vocab.tokens[key]) for key in sorted(known) for text in _sentences(vocab.tokens[key])]
    for label, text in [*PROBES.items(), *((f"added token {token!r}", text) for text, token in sentences)]:
        expected, ids = raw.encode(text, add_special_tokens=False).ids, auto.encode(text, add_special_tokens=False)
        total += len(expected)
        at = first_difference(expected, ids)
        if at is not None:
            detail = (
                f"{who} cuts {label} {_fragment(raw, text, at)!r} otherwise than tokenizer.json: token {at} is "
                f"{_show(expected, at, vocab)} by tokenizer.json and {_show(ids, at, vocab)} by AutoTokenizer"
            )
            report.require("same ids", False, detail, where, do)
    report.check("same ids", True, f"{total} tokens in {len(PROBES)} probe texts and {len(sentences)} sentences")

    # Ids that only tokenizer_config.json or added_tokens.json gives are known to AutoTokenizer alone.
    for key in sorted(vocab.added):
        for loader, encode in (("tokenizer.json", raw if key in known else None), (who, auto)):
            if encode is None:
                continue
            token = vocab.tokens[key]
            alone = _ids(encode, token)
            # White space may join the white space around it to another token, which is right.
            placed = token != token.strip() or all(key in _ids(encode, text) for text in _sentences(token))
            if alone != [key] or not placed:
                detail = f"{loader} cuts {token!r} to {alone[:8]}, not to id {key}"
                report.require("added tokens", False, detail, where, do)
    only = len(vocab.added - known.keys())
    detail = f"{len(vocab.added)} added tokens, each one id alone and in a sentence"
    report.check("added tokens", True, f"{detail}; {only} of them are not in tokenizer.json" if only else detail)
    report.figures.update(probe_tokens=total, added_tokens=len(vocab.added), transformers=transformers.__version__)
    return loaded


def _sentences(token: str) -> tuple[str, str]:
    return (f"text {token}\nmore", f"{token} {token}")


def _ids(encoder: Any, text: str) -> list[int]:
    """Ids of a text by a tokenizer of either library."""
    encoded = encoder.encode(text, add_special_tokens=False)
    return list(encoded if isinstance(encoded, list) else encoded.ids)


def _show(ids: Sequence[int], at: int, vocab: Vocab) -> str:
    return f"{ids[at]} ({vocab.show(ids[at])})" if at < len(ids) else "no token"


def _check_out(source: Path, out: Path) -> None:
    """Refuse to replace a folder that is not one this step wrote, or that holds the source."""
    if out == source or out in source.parents:
        raise BuildError("the folder to write holds the source", out, "give another --out")
    if out.exists() and not out.is_dir():
        raise BuildError("the folder to write is a file", out, "give another --out")
    allowed = {*REQUIRED, *OPTIONAL, ".snakemake_timestamp"}
    strange = sorted(path.name for path in out.iterdir() if path.name not in allowed) if out.exists() else []
    if strange:
        raise BuildError(
            f"the folder to write holds other files, such as {strange[0]}", out, "give another --out or remove them"
        )


def prepare(source: Path, out: Path) -> Report:
    """Write the tokenizer folder that the converter is given; ``out`` appears whole or stays as it was.

    Args:
        source: a folder as downloaded; never changed.
        out: the folder to write; one that this step wrote before is replaced.

    Returns:
        Checks, and the figures ``files`` (name, bytes, sha256, source_sha256, changed), ``tokenizer_class``
        (before, after, loaded), ``probe_tokens``, ``added_tokens`` and ``transformers``.

    Raises:
        BuildError: a file is missing or broken, files contradict each other, or the ids differ between loaders.
    """
    source, out = source.resolve(), out.resolve()
    report = Report()
    before = _read_source(source, report).get("tokenizer_class")
    _check_out(source, out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", suffix=".part", dir=out.parent) as scratch:
        fresh, old = Path(scratch) / "new", Path(scratch) / "old"
        fresh.mkdir()
        files = _copy(source, fresh, report)
        after = read_json(fresh / "tokenizer_config.json").get("tokenizer_class")
        loaded = probe(fresh, after, read_vocab(source), report)
        report.figures.update(files=files, tokenizer_class={"before": before, "after": after, "loaded": loaded})
        if out.exists():
            out.rename(old)
        try:
            fresh.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise
    return report


def _step(options: argparse.Namespace) -> None:
    report = prepare(options.source, options.out)
    report.write(options.report)
    figures = report.figures
    say(
        f"{options.out}: {len(figures['files'])} files, class {figures['tokenizer_class']['after']}, "
        f"{figures['added_tokens']} added tokens, same ids on {figures['probe_tokens']} probe tokens"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command-line front; returns the exit code."""
    arguments = parser(__doc__)
    arguments.add_argument("--source", type=Path, required=True, help="tokenizer folder as downloaded")
    arguments.add_argument("--out", type=Path, required=True, help="folder to write")
    arguments.add_argument("--report", type=Path, required=True, help="JSON report to write")
    return run(arguments, _step, argv)


if __name__ == "__main__":
    raise SystemExit(main())
