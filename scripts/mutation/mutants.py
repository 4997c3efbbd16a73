"""Mutants: small breakages of statements, and a seeded choice of them for scripts/mutation/run.py."""

import ast
import collections
import copy
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGES = ("model", "training", "decoding", "data", "bundle", "storage")
QUIET = set("debug info warning error print echo collect empty_cache close flush barrier synchronize setLevel".split())
IDLE_KEYWORDS = """stable set_to_none reshard_after_forward pretty buffering strict exist_ok parents non_blocking copy
pin_memory ensure_ascii sort_keys stacklevel""".split()
COMPARISONS = [(ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)]
OPPOSITE = {a: b for pair in COMPARISONS for a, b in (pair, pair[::-1])}


@dataclass
class Place:
    """A statement in a tree: its file and function, and the list of statements that holds it."""

    path: str
    function: str
    text: str
    holder: list[ast.stmt]
    index: int

    @property
    def node(self) -> ast.stmt:
        return self.holder[self.index]


def header(node: ast.stmt) -> ast.stmt:
    """Return the statement without the statements it contains."""
    if not hasattr(node, "body"):
        return node
    empty = {"orelse": [], "decorator_list": [], "handlers": [], "finalbody": []}
    stub = copy.copy(node)
    for field, value in {**empty, "body": [ast.Pass()]}.items():
        if hasattr(stub, field):
            setattr(stub, field, value)
    return stub


def places(module: ast.Module, path: str) -> Iterator[Place]:
    """Yield the statements inside of functions and the headers of functions, in order."""

    def visit(holder: list[ast.stmt], function: str, inside: bool) -> Iterator[Place]:
        for index, node in enumerate(holder):
            named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            name = f"{function}.{node.name}".strip(".") if named else function
            is_function = named and not isinstance(node, ast.ClassDef)
            if (inside and not named and not isinstance(node, ast.Try)) or is_function:
                yield Place(path, name, ast.unparse(header(node)), holder, index)
            handlers = [handler.body for handler in getattr(node, "handlers", [])]
            for inner in (*(getattr(node, field, []) for field in ("body", "orelse", "finalbody")), *handlers):
                yield from visit(inner, name, is_function or (inside and not named))

    return visit(module.body, "", False)


def is_quiet(node: ast.AST) -> bool:
    """Return whether a call has an effect that is not tested: logging, closing, freeing."""
    call = node.value if isinstance(node, ast.Expr) else node
    return isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) in QUIET


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """Walk through what decides results: no annotations, messages, or keywords without an effect on them."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            idle = isinstance(child, ast.keyword) and child.arg in IDLE_KEYWORDS
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr) and not idle and not is_quiet(child):
                yield from walk(child)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def mutate(node: Any, is_root: bool) -> Iterator[str]:
    """Break a node in place in several ways; yields each one's kind while it is broken."""
    fields = dict(vars(node))
    negated = (
        {"test": ast.UnaryOp(ast.Not(), fields["test"])} if isinstance(node, ast.If | ast.While | ast.IfExp) else {}
    )
    changes: list[tuple[str, dict[str, Any]]] = [("not", negated)]
    match node:
        case ast.Compare(ops=[op]) if type(op) in OPPOSITE:
            changes.append(("comparison", {"ops": [OPPOSITE[type(op)]()]}))
        case ast.BinOp(op=ast.Add() | ast.Sub()) if not is_text(node.left) and not is_text(node.right):
            changes.append(("plus/minus", {"op": ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()}))
        case ast.AugAssign(op=ast.Add() | ast.Sub()) if not is_text(node.value):
            changes.append(("plus/minus", {"op": ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()}))
        case ast.BoolOp():
            changes.append(("and/or", {"op": ast.Or() if isinstance(node.op, ast.And) else ast.And()}))
        case ast.UnaryOp(op=ast.Not()):
            changes.append(("not", {"operand": ast.UnaryOp(ast.Not(), node.operand)}))
        case ast.Constant(value=bool()):
            changes.append(("boolean", {"value": not node.value}))
        case ast.Constant(value=int() | float()) if abs(node.value) < 1024:
            changes.append(("constant", {"value": node.value + 1}))
        case ast.Slice():
            bounds = {side: bound for side in ("lower", "upper") if (bound := getattr(node, side)) is not None}
            changes += [("slice", {s: ast.BinOp(bound, ast.Add(), ast.Constant(1))}) for s, bound in bounds.items()]
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            changes.append(("min/max", {"func": ast.Name("max" if name == "min" else "min")}))
        case ast.Return(value=ast.expr()) if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            changes.append(("return", {"value": ast.Constant(None)}))
        case ast.If():
            changes.append(("if body", {"test": ast.BoolOp(ast.And(), [node.test, ast.Constant(False)])}))
        case ast.Expr(value=ast.Call()) if is_root:
            changes.append(("call", {"value": ast.Constant(...)}))
    for kind, change in changes:
        if change:
            vars(node).update(change)
            yield kind
            vars(node).update(fields)


def mutations(place: Place) -> Iterator[tuple[str, str]]:
    """Yield kind and source of each mutation of a statement."""
    node = place.node
    silent = isinstance(node, ast.If) and all(map(is_quiet, node.body))
    words = ("cuda", "failpoint(", "TYPE_CHECKING", "set_num_threads", "nccl")
    if isinstance(node, ast.Raise | ast.Assert) or silent or is_quiet(node) or any(w in place.text for w in words):
        return
    if place.function.rpartition(".")[2] in ("__repr__", "__str__", "extra_repr"):
        return
    root = ast.parse(place.text).body[0]
    is_function = isinstance(root, ast.FunctionDef | ast.AsyncFunctionDef)
    for inner in walk(root):
        for kind in mutate(inner, inner is root):
            yield "default" if is_function else kind, ast.unparse(ast.fix_missing_locations(root))


def choose(count: int, seed: int, tree: Path, packages: Sequence[str] = PACKAGES) -> list[dict[str, Any]]:
    """Draw mutants from each package in proportion to its lines, with all kinds of mutation equally often."""
    rng, source, chosen = random.Random(seed), tree / "src" / "mt", []
    files = {package: sorted((source / package).glob("*.py")) for package in packages}
    lines = {package: sum(len(path.read_text().splitlines()) for path in paths) for package, paths in files.items()}
    for package, paths in files.items():
        quota = round((count - len(chosen)) * lines[package] / sum(lines.values()))
        del lines[package]
        found: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
        for path in paths:
            repeats: collections.Counter[tuple[str, str]] = collections.Counter()
            for place in places(ast.parse(path.read_text()), str(path.relative_to(source))):
                key = place.function, place.text
                for kind, text in mutations(place):
                    mutant = {"package": package, "module": place.path, "function": place.function, "kind": kind}
                    found[kind].append({**mutant, "occurrence": repeats[key], "old": place.text, "new": text})
                repeats[key] += 1
        for mutants in found.values():
            rng.shuffle(mutants)
        used: collections.Counter[Any] = collections.Counter()
        while quota and any(found.values()):
            for kind in rng.sample(sorted(found), len(found)):
                while quota and found[kind]:
                    mutant = found[kind].pop()
                    statement = mutant["module"], mutant["function"], mutant["old"]
                    if not used[statement] and used[statement[:2]] < 3:
                        used.update([statement, statement[:2]])
                        chosen.append({"id": len(chosen), **mutant})
                        quota -= 1
                        break
    return chosen
