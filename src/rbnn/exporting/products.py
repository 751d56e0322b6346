"""Sums of products of two values, as in attention: handlers like those of ``rbnn.exporting.handlers``."""

from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from rbnn.exporting.arithmetic import add
from rbnn.exporting.handlers import affine, linear
from rbnn.exporting.reductions import total
from rbnn.exporting.selections import taken
from rbnn.exporting.shapes import permuted, placed_constant, reshaped
from rbnn.exporting.traced_call import MASKED, Call, Place, without_infinities


def einsum(call: Call, equation: str, *operands: Any) -> str:
    """Two values that are summed over their common letters: a product of matrices, batched over the other common
    letters."""
    given = list(operands[0]) if len(operands) == 1 and isinstance(operands[0], tuple | list) else list(operands)
    left, arrow, out = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(given) or len(given) > 2 or "." in equation:
        raise call.fail("only one or two operands and an explicit result are supported: use matmul and permute")
    if any(len(set(term)) < len(term) for term in [*terms, out]):
        raise call.fail("a letter occurs twice in one term: use matmul and permute")
    if len(given) == 1:
        return _permuted_sum(call, given[0], terms[0], out)
    if not isinstance(given[0], Place):  # the constant comes second
        terms, given = terms[::-1], given[::-1]
    batch = terms[0][0]
    if out[:1] != batch or (isinstance(given[1], Place) and terms[1][0] != batch):
        raise call.fail("images of a batch must stay separate: the first letter is the batch")
    if not isinstance(given[1], Place):
        if batch in terms[1]:
            raise call.fail("a constant with one value per image of the batch fits only one batch")
        shape = [len(call.result), *given[1].shape]
        given[1] = placed_constant(call, given[1].detach().expand(shape), ".constant")
        terms[1] = batch + terms[1]
    return _product(call, given, terms, out)


def _permuted_sum(call: Call, x: Any, term: str, out: str) -> str:
    if out[:1] != term[0]:
        raise call.fail("images of a batch must stay separate: the first letter is the batch")
    gone = [index for index, letter in enumerate(term) if letter not in out]
    kept = [letter for letter in term if letter in out]
    order = [kept.index(letter) for letter in out]
    if not gone:
        return permuted(call, x, order, "").buffer
    value = x.value.sum(gone)
    made = Place(total(replace(call, result=value, name=f"{call.name}.sum"), x, gone), value)
    return permuted(call, made, order, "").buffer


def _product(call: Call, given: list[Place], terms: list[str], out: str) -> str:
    batch, (a, b) = out[0], terms
    both = [letter for letter in a[1:] if letter in b and letter in out]
    summed = [letter for letter in a[1:] if letter in b and letter not in out]
    rows, columns = ([letter for letter in term[1:] if letter not in other] for term, other in ((a, b), (b, a)))
    if any(letter not in out for letter in rows + columns):
        raise call.fail("a letter that occurs in only one term is summed over: sum over it first")
    sizes: dict[str, int] = {}
    for place, term in zip(given, terms, strict=True):
        sizes |= dict(zip(term, place.value.shape, strict=True))
    heads, deep, high, wide = (prod(sizes[letter] for letter in letters) for letters in (both, summed, rows, columns))

    def matrix(place: Place, term: str, letters: list[str], sides: list[int], part: str) -> Place:
        turned = permuted(call, place, [term.index(letter) for letter in [batch, *both, *letters]], f"{part}.turned")
        seen = turned.value.reshape(len(turned.value), *sides)
        return Place(reshaped(call, turned, seen, part), seen)

    first = matrix(given[0], a, rows + summed, [heads, high, deep], ".a")
    second = matrix(given[1], b, summed + columns, [heads, deep, wide], ".b")
    value = first.value @ second.value
    made = call.write("matmul", {"a": first.buffer, "b": second.buffer}, value=value, part=".product")
    letters = [batch, *both, *rows, *columns]
    seen = value.reshape([sizes[letter] for letter in letters])
    apart = Place(reshaped(call, Place(made, value), seen, ".apart"), seen)
    return permuted(call, apart, [letters.index(letter) for letter in out], "").buffer


def attention(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> str:
    """``softmax(q kᵀ · scale + mask) v`` for each head."""
    if dropout_p:
        raise call.fail("its dropout is active in evaluation mode: pass dropout_p=p if self.training else 0.0")
    q, k, v = (
        each if isinstance(each, Place) else _learned(call, each, f".{name}")
        for name, each in zip("qkv", (query, key, value), strict=True)
    )
    if enable_gqa:
        heads = q.value.shape[-3]
        k, v = (_with_heads(call, each, heads, f".{name}") for name, each in (("k", k), ("v", v)))
    if q.value.dim() < 3 or not q.value.shape[:-2] == k.value.shape[:-2] == v.value.shape[:-2]:
        raise call.fail(
            "queries, keys and values must be (N, length, channels) or (N, heads, length, channels), with as many heads"
        )
    factor = q.value.shape[-1] ** -0.5 if scale is None else float(scale)
    if is_causal:
        attn_mask = torch.ones(q.value.shape[-2], k.value.shape[-2], dtype=torch.bool).tril()
    mask = None if attn_mask is None else _mask(call, attn_mask, (*q.value.shape[:-1], k.value.shape[-2]))

    def of_heads(value: Tensor) -> Tensor:
        return value.reshape(len(value), -1, *value.shape[-2:])

    q, k, v = (
        Place(reshaped(call, each, of_heads(each.value), f".{name}.heads"), of_heads(each.value))
        for name, each in zip("qkv", (q, k, v), strict=True)
    )
    if q.value.shape[:2] == call.result.shape[:2] and call.result.dim() == 4:
        return _attended(call, q, k, v, factor, mask)[0]
    together = of_heads(call.result)
    made = _attended(replace(call, result=together), q, k, v, factor, mask, ".together")[0]
    return reshaped(call, Place(made, together), call.result)


def _learned(call: Call, tensor: Tensor, part: str) -> Place:
    """Queries, keys or values that are constants."""
    return placed_constant(call, tensor.expand(len(call.result), *tensor.shape[1:]), part)


def _with_heads(call: Call, x: Place, heads: int, part: str) -> Place:
    """Each head of x repeated, until there are ``heads`` of them."""
    dim, own = x.value.dim() - 3, x.value.shape[-3]
    return taken(call, x, dim, [head for head in range(own) for _ in range(heads // own)], part)


def _mask(call: Call, mask: Any, shape: tuple[int, ...]) -> Tensor | Place:
    """What is added to the scores of this shape, with all heads in the second of four dimensions.  A Boolean mask is
    True where there is attention."""
    if isinstance(mask, Place):
        if mask.value.dim() != 4 or len(shape) != 4:
            raise call.fail("a mask that depends on the input must be (N, heads, queries, keys)")
        if mask.value.dtype != torch.bool:
            return mask
        value = (~mask.value).float() * MASKED
        return Place(affine(call, mask, -MASKED, MASKED, ".mask", value), value)
    terms = (~mask).float() * MASKED if mask.dtype == torch.bool else without_infinities(mask.detach())
    terms = terms.reshape(*[1] * (len(shape) - terms.dim()), *terms.shape)
    if not bool((terms == terms[:1]).all()):
        raise call.fail("a constant with one value per image of the batch fits only one batch")
    if len(shape) > 4:
        terms = terms[:1].expand(1, *shape[1:])
    return terms[:1].reshape(1, -1, *terms.shape[-2:])


def _attended(
    call: Call, query: Place, key: Place, value: Place, factor: float, mask: Tensor | Place | None, part: str = ""
) -> tuple[str, Place]:
    """The output for each query, as the result of ``call`` or, with a ``part``, as an intermediate value; and the
    weights."""
    scores = query.value @ key.value.transpose(-2, -1)
    turned = permuted(call, key, [0, 1, 3, 2], ".turned")
    made = Place(call.write("matmul", {"a": query.buffer, "b": turned.buffer}, value=scores, part=".scores"), scores)
    scores = scores * factor
    scaled = Place(affine(call, made, factor, 0.0, ".scaled", scores), scores)
    if mask is not None:
        scores = scores + (mask.value if isinstance(mask, Place) else mask)
        masked = replace(call, result=scores, name=f"{call.name}.masked")
        scaled = Place(add(masked, scaled, mask), scores)
    weights = scores.softmax(-1)
    chosen = call.write("softmax", {"x": scaled.buffer}, attributes={"over": "w"}, value=weights, part=".weights")
    seen = weights @ value.value if part else call.result
    return call.write("matmul", {"a": chosen, "b": value.buffer}, value=seen, part=part), Place(chosen, weights)


def multi_head_attention(
    call: Call,
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> list[str]:
    """Torch's multi-head attention for (N, length, channels): projections, ``attention`` of each head, and one more
    projection."""
    if any(each is not None for each in (bias_k, bias_v, static_k, static_v)) or add_zero_attn:
        raise call.fail("added keys and values are not supported: leave out add_bias_kv and add_zero_attn")
    if training and dropout_p:
        raise call.fail("its dropout is active in evaluation mode")
    answer, weights = call.result
    weight = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight.chunk(3)
    bias = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)
    heads = []
    for name, x, w, b in zip("qkv", (query, key, value), weight, bias, strict=True):
        place = x if isinstance(x, Place) else placed_constant(call.part_giving(answer), x.transpose(0, 1), f".{name}0")
        projected = torch.nn.functional.linear(place.value, w.detach(), None if b is None else b.detach())
        made = linear(replace(call, result=projected, name=f"{call.name}.{name}"), place, w, b)
        apart = projected.reshape(*projected.shape[:2], num_heads, -1)
        seen = Place(reshaped(call, Place(made, projected), apart, f".{name}.apart"), apart)
        heads.append(permuted(call, seen, [0, 2, 1, 3], f".{name}.heads"))
    q, k, v = heads
    scores = (*q.value.shape[:-1], k.value.shape[-2])
    mask = _of_heads(call, attn_mask, key_padding_mask, scores)
    seen_by_heads, chosen = _attended(call, q, k, v, q.value.shape[-1] ** -0.5, mask, ".seen")
    side = permuted(call, Place(seen_by_heads, chosen.value @ v.value), [0, 2, 1, 3], ".side")
    flat = side.value.flatten(2)
    together = Place(reshaped(call, side, flat, ".together"), flat)
    out = linear(call.part_giving(answer), together, out_proj_weight, out_proj_bias)
    if weights is None:
        return [out]
    if not average_attn_weights:
        return [out, chosen.buffer]
    average = chosen.value.mean(1, keepdim=True)
    mean = call.write("mean", {"x": chosen.buffer}, attributes={"over": "c"}, value=average, part=".mean")
    return [out, reshaped(call, Place(mean, average), average[:, 0], ".average")]


def _of_heads(call: Call, mask: Any, padding: Any, shape: tuple[int, ...]) -> Tensor | None:
    """The masks of torch's multi-head attention for scores of this shape.  A Boolean mask is True where there is no
    attention."""
    found: Tensor | None = None
    for each, sides in ((mask, (-1, shape[1], *shape[2:])), (padding, (shape[0], 1, 1, shape[3]))):
        if each is None:
            continue
        if not isinstance(each, Tensor):
            raise call.fail("a mask that depends on the input is not supported: add it to the scores of your own heads")
        whole = each.reshape(1, 1, *each.shape) if each is mask and each.dim() == 2 else each.reshape(sides)
        terms = _mask(call, ~whole if whole.dtype == torch.bool else whole, shape)
        assert isinstance(terms, Tensor)
        found = terms if found is None else found + terms
    return found
