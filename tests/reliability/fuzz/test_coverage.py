"""Random networks have every kind of operation and every field of the format, and mutants change each of them."""

import json
from collections import Counter

import numpy as np
from encode import KINDS as ENCODED
from encode import ROLES, WORDS
from format_coverage import changed, fields, present
from mutants import mutated
from random_graphs import random_free_graph
from test_structured import case, original

from rbnn.packed import file as packfile
from rbnn.packed.operations import ACTIVATIONS, KINDS

NETWORKS, MUTANTS = 1500, 9000


def test_every_field_of_the_format_is_covered() -> None:
    """Prints the table (pytest -s): in how many networks a field is, and how many mutants change it."""
    valid, mutants = Counter[str](), Counter[str]()
    for seed in range(NETWORKS):
        valid.update(present(case(seed)[0] if seed % 2 else random_free_graph(np.random.default_rng(seed))))
    for seed in range(MUTANTS):
        rng, graph = np.random.default_rng(seed), original(seed)
        value, tensors = mutated(graph, rng)
        found = changed(json.loads(packfile._to_json(graph)), value)
        roles = {id(array): f"{each.kind} {role}" for each in graph.operations for role, array in each.tensors.items()}
        found |= {roles[id(array)] for name, array in graph.tensors.items() if tensors[name] is not array}
        mutants.update(found)
    rows = [(field, valid[field], mutants[field]) for field in fields()]
    print(f"\n{'field':44} networks  mutants")
    print("\n".join(f"{field:44} {there:8,} {different:8,}" for field, there, different in rows))
    assert [field for field, there, _ in rows if there == 0] == []
    assert [field for field, _, different in rows if different == 0] == []


def test_every_field_may_be_missing() -> None:
    """What is optional is left out in some networks."""
    kinds = {name: [*kind.tensors.items(), *kind.inputs.items(), *kind.outputs.items()] for name, kind in KINDS.items()}
    optional = {(name, role) for name, roles in kinds.items() for role, rule in roles if rule.endswith("?")}
    optional |= {(n, role) for n, kind in KINDS.items() for role, each in kind.attributes.items() if each.optional}
    for seed in range(NETWORKS):
        for each in case(seed)[0].operations:
            has = {*each.inputs, *each.outputs, *each.tensors, *each.attributes}
            optional -= {(kind, role) for kind, role in optional if kind == each.kind and role not in has}
    assert optional == set()


def test_the_fuzzer_of_the_engine_knows_every_word() -> None:
    """The tables of fuzz_program.cpp, from which libFuzzer chooses."""
    assert set(KINDS) <= set(ENCODED)
    for kind in KINDS.values():
        assert {*kind.inputs, *kind.outputs, *kind.tensors, *kind.attributes} <= set(ROLES)
    assert set(ACTIVATIONS) <= set(WORDS)
