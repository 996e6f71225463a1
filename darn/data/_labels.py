"""Class labels: which column they are in, their numbers, and the one-hot context made of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from darn.data._raw import Raw
from darn.errors import DarnError

MOST = 1000  # a column with more classes than this is not a label


def column_index(labels, columns, width: int, what: str, option: str = "labels") -> int:
    """The index of a column given by name or by number, counted from 0 with -1 the last (also as text)."""
    if isinstance(labels, str):
        if columns and labels in columns:
            return columns.index(labels)
        try:
            labels = int(labels)
        except ValueError:
            known = f"its columns are {', '.join(columns[:8])}{' ...' * (len(columns) > 8)}" if columns else "no header"
            raise DarnError(
                f"{what} has no column named {labels!r} ({known}): give {option} as a column name or number"
            ) from None
    if isinstance(labels, bool) or not isinstance(labels, int | np.integer):
        raise DarnError(f"labels = {labels!r} is not a column: give its name or its number")
    if not -width <= labels < width:
        raise DarnError(
            f"{what} has {width} columns, so labels = {labels} is none of them (counted from 0, -1 the last)"
        )
    if width < 2:
        raise DarnError(f"{what} has only one column: nothing is left if it is used as the label")
    return int(labels) % width


def check_known(names: Sequence[str], columns: Sequence[str], what: str, option: str) -> None:
    """Refuses names that are no columns, all at once; numbers of columns are left to `column_index`."""
    unknown = [n for n in names if n not in columns and not re.fullmatch(r"-?\d+", n)]
    if unknown:
        near = {n: difflib.get_close_matches(n, columns, n=1) for n in unknown[:8]}
        said = ", ".join(repr(n[:40]) + (f" (did you mean {w[0]!r}?)" if w else "") for n, w in near.items())
        known = f"{', '.join(columns[:8])}{' ...' * (len(columns) > 8)}"
        raise DarnError(
            f"{what} has no column named {said} (its columns are {known}): give {option} as column names or numbers"
        )


def take_column(raw: Raw, labels) -> Raw:
    """Moves one column of an array out of the data, as its labels; text tables do this while parsing."""
    width = next(iter(raw.parts.values())).X.shape[1]
    c = column_index(labels, raw.columns, width, raw.what)
    parts = {
        split: replace(part, X=np.delete(part.X, c, axis=1), labels=part.X[:, c]) for split, part in raw.parts.items()
    }
    columns = raw.columns and raw.columns[:c] + raw.columns[c + 1 :]
    return replace(raw, parts=parts, columns=columns, shape=None)


def encode(raw: Raw, as_context: bool, classes=None) -> tuple[Raw, tuple[str, ...] | None]:
    """With `as_context`: turns labels into class numbers, the same in all splits, and a one-hot context.

    `classes` are those a model was trained with; rows to score need not contain all of them.
    """
    if not as_context:  # labels that were not requested are kept if they are numbers, and never refused
        kept = {s: None if p.labels is None else as_numbers(p.labels) for s, p in raw.parts.items()}
        return replace(raw, parts={s: replace(p, labels=kept[s]) for s, p in raw.parts.items()}), None
    words = {split: as_words(part.labels, raw.label(split), part.before) for split, part in raw.parts.items()}
    if classes is None:
        seen = set().union(*words.values())
        check_few(seen, raw.what)
        classes = sorted(seen, key=numbers_first)
    classes = tuple(str(c) for c in classes)
    code = {c: i for i, c in enumerate(classes)}
    parts = {}
    for split, part in raw.parts.items():
        unknown = sorted(set(words[split]) - code.keys())
        if unknown:
            raise DarnError(
                f"{raw.label(split)} has the label {unknown[0][:40]!r}, which is none of the classes "
                f"{', '.join(c[:40] for c in classes[:10])}{' ...' * (len(classes) > 10)}"
            )
        index = np.array([code[w] for w in words[split]], dtype=np.int64)
        context = np.eye(len(classes), dtype=np.float32)[index]
        if part.context is not None:
            context = np.concatenate([part.context, context], axis=1)
        parts[split] = replace(part, labels=index, context=context)
    return replace(raw, parts=parts), classes


def check_few(classes: Collection[str], what: str) -> None:
    """Refuses a column that cannot be a label."""
    if len(classes) > MOST:
        raise DarnError(f"{what} has {len(classes)} different labels, more than {MOST}: that is not a class label")


def class_numbers(classes: Sequence[str], known: Sequence[str]) -> np.ndarray:
    """The number of each class among those that are known; -1 for another."""
    code = {c: i for i, c in enumerate(known)}
    return np.array([code.get(c, -1) for c in classes], np.int64)


def as_numbers(values: np.ndarray) -> np.ndarray | None:
    return values.astype(np.int64) if values.ndim == 1 and values.dtype.kind in "biu" else None


def as_words(values: np.ndarray | None, what: str, before: int = 0) -> list[str]:
    """Labels as text, the same for 1, 1.0 and '1'; `before` rows of the file come before these."""
    values = np.asarray(values)
    if values.ndim != 1 or values.dtype.kind not in "biufUO":
        raise DarnError(f"{what}: labels must be one number or word for each row")
    if values.dtype.kind == "b":
        values = values.astype(np.uint8)
    found = values.tolist()
    once = {v: plain(str(v)) for v in set(found)}
    words = [once[v] for v in found]
    if (missing := {"", "nan"}.intersection(words)) != set():
        row = before + next(i for i, w in enumerate(words) if w in missing)
        raise DarnError(f"{what}: the label of row {row + 1} (counted from 1) is missing")
    return words


def plain(word: str) -> str:
    word = word.strip().strip('"').strip()
    try:
        value = float(word)
    except ValueError:
        return word
    return str(int(value)) if value == value and abs(value) < 2**53 and value == int(value) else repr(value)


def numbers_first(word: str):
    try:
        return (0, float(word), word)
    except ValueError:
        return (1, 0.0, word)
