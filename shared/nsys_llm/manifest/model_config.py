"""The file of --model, a config.json of Hugging Face: the numbers that say what a step computes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.option_files import read_option_file
from nsys_llm.taxonomy.data_files import data_file

#: Bytes of a number, by torch_dtype.
BYTES: Final = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
#: What GPUs' data sheets call them.
PEAK_TYPES: Final = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
#: Bytes of a scale, and of a number in mxfp4 with its part of a scale.
_SCALE_BYTES: Final = 2.0
_MXFP4_BYTES: Final = 4.25 / 8
#: More than any model has; such a number is a mistake.
_LARGEST: Final = 1 << 31
_MOST_LAYERS: Final = 1 << 12
#: Number of a layer in the name of a module, and what stands before it.
_LAYER: Final = re.compile(r"(?:.*\.)?(?:layers?|h|blocks)\.([0-9]{1,9})(?:\.|$)")
_AROUND: Final = ("", "model", "transformer", "language_model", "decoder", "layers")
_ATTENTION: Final = ("q_proj", "o_proj", "k_proj", "v_proj")
_FEED_FORWARD: Final = ("gate_proj", "up_proj", "down_proj")
#: Characters of a key and a value that are not known.
_MOST_SHOWN: Final = 100
_NUMBERS: Final = ("hidden_size", "num_attention_heads", "vocab_size")


@dataclass(frozen=True)
class Experts:
    """The mixture of experts of a model.

    Attributes:
        shared_size: Of all shared experts of a layer together.
        layers: Those that have experts; the others are dense.
    """

    experts_n: int
    chosen_n: int
    size: int
    shared_size: int
    layers: tuple[int, ...]


@dataclass(frozen=True)
class ModelConfig:
    """A model; sizes in numbers, not bytes.

    Attributes:
        reason: Key whose meaning is not known here, so that nothing is computed; None for none.
        hidden: Width, h.
        layers_n: L.
        intermediate: Width of the dense feed-forward network, F.
        vocabulary: V.
        is_gated: Whether that network has three matrices, else two.
        all_reduces_n: Of a layer whose weights are spread.
        attention_bytes: Mean bytes of a weight of queries and output, quantized with its scales.
        keys_bytes: Of one of keys and values.
        weight_bytes: Of one of a dense feed-forward network, or of shared experts.
        expert_bytes: Of one of routed experts.
        kv_bytes: Of a key's or value's number, without --kv-dtype.
        compute: Type whose peak the products reach, as in data sheets.
        experts: None for a dense model.
    """

    reason: str | None
    hidden: int = 0
    layers_n: int = 0
    heads_n: int = 0
    kv_heads_n: int = 0
    head_dim: int = 0
    intermediate: int = 0
    vocabulary: int = 0
    is_gated: bool = True
    dtype: str = "bfloat16"
    all_reduces_n: int = 2
    attention_bytes: float = 2.0
    keys_bytes: float = 2.0
    weight_bytes: float = 2.0
    expert_bytes: float = 2.0
    kv_bytes: float = 2.0
    compute: str = "bf16"
    experts: Experts | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ModelConfig:
        """Return the model of an option's value, see `model_fields`."""
        experts = fields["experts"]
        return cls(**{**fields, "experts": None if experts is None else Experts(**experts)})


class _Unknown(Exception):
    """A key changes the formula and is not known."""


def model_fields(path: str) -> dict[str, Any]:
    """Return the fields of `ModelConfig` of a file, as an option's value that JSON can hold.

    Raises:
        UsageError: See `read_model`.
    """
    return asdict(read_model(path))


def read_model(path: str) -> ModelConfig:
    """Read a config.json.

    Raises:
        UsageError: The file cannot be read, is no JSON object, or lacks sizes.
    """
    text = read_option_file(path)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be read as JSON ({error}).") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path}: is no JSON object; --model takes the config.json of a model.")
    try:
        return model_of(content)
    except _Unknown as error:
        # It stands in every row of some tables.
        said = str(error)[:_MOST_SHOWN].encode("utf-8", "replace").decode("utf-8")
        return ModelConfig(reason=said)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}") from error


def model_of(content: Mapping[str, Any]) -> ModelConfig:
    """Return the model of a config.

    Raises:
        UsageError: A value is missing, or not of its type or size.
    """
    data = data_file("model_types")
    config = {data["names"].get(key, key): value for key, value in content.items()}
    known = {*data["used"], *data["harmless"]}
    # What is off changes nothing, nor what is as it would be anyway.
    known |= {key for key, same in data["equal"].items() if config.get(key) == config.get(same)}
    unknown = [key for key, value in config.items() if key not in known and value]
    kind = config.get("model_type")
    if kind not in data["gated"] and kind not in data["ungated"]:
        raise _Unknown(f"model_type {kind}")
    if unknown:
        raise _Unknown(sorted(unknown)[0])
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        raise _Unknown("sliding_window")
    if any(item != "full_attention" for item in _listed(config, "layer_types")):
        raise _Unknown("layer_types")
    hidden, heads_n, vocabulary = (_size(config, key) for key in _NUMBERS)
    layers_n = _size(config, "num_hidden_layers", most=_MOST_LAYERS)
    default = 4 * hidden if kind in data["ungated"] else None
    intermediate = _size(config, "intermediate_size", default)
    dtype = str(config.get("torch_dtype") or "").removeprefix("torch.")
    if dtype not in BYTES:
        raise _Unknown(f"torch_dtype {dtype or 'missing'}")
    experts = _experts(config, layers_n, intermediate)
    modules = _modules(layers_n, intermediate, experts, is_gated=kind in data["gated"])
    return ModelConfig(
        reason=None,
        hidden=hidden,
        layers_n=layers_n,
        heads_n=heads_n,
        kv_heads_n=_size(config, "num_key_value_heads", heads_n, most=heads_n),
        head_dim=_size(config, "head_dim", hidden // heads_n),
        intermediate=intermediate,
        vocabulary=vocabulary,
        is_gated=kind in data["gated"],
        dtype=dtype,
        experts=experts,
        all_reduces_n=1 if kind in data["one_all_reduce"] else 2,
        **_quantized(_object(config, "quantization_config"), dtype, modules),
    )


def _size(
    config: Mapping[str, Any],
    key: str,
    default: int | None = None,
    *,
    least: int = 1,
    most: int = _LARGEST,
) -> int:
    value = default if config.get(key) is None else config[key]
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"'{key}' must be a whole number from {least} to {most}.")
    return value


def _listed(config: Mapping[str, Any], key: str) -> list[Any]:
    value = [] if config.get(key) is None else config[key]
    if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
        raise UsageError(f"'{key}' must be a list of names or numbers.")
    return value


def _object(config: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    value = config.get(key)
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"'{key}' must be a JSON object.")
    return value


def _experts(config: Mapping[str, Any], layers_n: int, intermediate: int) -> Experts | None:
    if config.get("experts") is None:
        return None
    experts_n = _size(config, "experts")
    chosen_n = _size(config, "num_experts_per_tok", most=experts_n)
    size = _size(config, "moe_intermediate_size", intermediate)
    first_n = _size(config, "first_k_dense_replace", 0, least=0, most=layers_n)
    dense = {*_listed(config, "mlp_only_layers"), *range(first_n)}
    every = _size(config, "decoder_sparse_step", 1)
    sparse = tuple(k for k in range(layers_n) if k not in dense and (k + 1) % every == 0)
    shared = _size(config, "n_shared_experts", 0, least=0) * size
    shared += _size(config, "shared_expert_intermediate_size", 0, least=0)
    return Experts(experts_n, chosen_n, size, shared, sparse)


def _modules(
    layers_n: int, intermediate: int, experts: Experts | None, *, is_gated: bool
) -> dict[tuple[int, str], tuple[str, int]]:
    """Return by layer and name of each matrix the field with the bytes of its weights, and size.

    Sizes compare matrices of one field only.
    """
    names = _FEED_FORWARD[not is_gated :]
    modules = {}
    for layer in range(layers_n):
        for place, name in enumerate(_ATTENTION):
            kind = "attention_bytes" if place < 2 else "keys_bytes"
            modules[layer, f"self_attn.{name}"] = kind, 1
        parts = {"mlp": ("weight_bytes", intermediate)}
        if experts is not None and layer in experts.layers:
            parts = {"mlp.experts": ("expert_bytes", 1)}
            if experts.shared_size:
                parts["mlp.shared_experts"] = "weight_bytes", experts.shared_size
        modules |= {(layer, f"{part}.{name}"): of for part, of in parts.items() for name in names}
    return modules


def _quantized(
    config: Mapping[str, Any] | None, dtype: str, modules: Mapping[tuple[int, str], tuple[str, int]]
) -> dict[str, Any]:
    """Return mean bytes of weights by field, of keys and values, and the type that computes."""
    plain, compute = BYTES[dtype], PEAK_TYPES[dtype]
    fields = ("attention_bytes", "keys_bytes", "weight_bytes", "expert_bytes")
    if config is None:
        return {**dict.fromkeys((*fields, "kv_bytes"), plain), "compute": compute}
    method, left_out = config.get("quant_method"), "modules_to_not_convert"
    if method in ("awq", "gptq"):
        weight_bytes = _of_bits(config.get("bits")) + _scale_bytes(config)
    elif method == "fp8":
        weight_bytes, compute = 1.0, "fp8"
    elif method == "mxfp4":
        weight_bytes = _MXFP4_BYTES
    elif method == "compressed-tensors":
        left_out = "ignore"
        weight_bytes, compute = _compressed(config, compute)
    else:
        raise _Unknown(f"quant_method {method}")
    names = list(map(str, _listed(config, left_out)))
    kept = {key for name in names for key in _left_out(name, left_out, modules)}
    sums = {field: [0, 0] for field in fields}
    for key, (field, size) in modules.items():
        sums[field][0] += size
        sums[field][1] += size * (key in kept)
    means = {
        field: weight_bytes + (plain - weight_bytes) * part / max(whole, 1)
        for field, (whole, part) in sums.items()
    }
    scheme = _object(config, "kv_cache_scheme")
    kv_bytes = plain if scheme is None else _of_bits(scheme.get("num_bits"))
    return {**means, "kv_bytes": kv_bytes, "compute": compute}


def _left_out(
    text: str, key: str, modules: Mapping[tuple[int, str], tuple[str, int]]
) -> list[tuple[int, str]]:
    """Return the matrices that an entry of a list of modules names: all that it stands above.

    An entry is the path of a module or a part of that, or an expression that such a path matches.
    """
    data = data_file("model_types")
    if text.startswith("re:"):
        try:
            matches = re.compile(text[3:]).match
        except re.error as error:
            raise _Unknown(f"{key} {text}") from error
        paths = {key: f"model.layers.{key[0]}.{key[1]}" for key in modules}
        found = [place for place, path in paths.items() if matches(path)]
        others = ("mlp.gate", "block_sparse_moe.gate", "mlp.router", "mlp.shared_expert_gate")
        known = ["lm_head", "model.embed_tokens", *(f"model.layers.0.{name}" for name in others)]
        is_known = bool(found) or any(map(matches, known))
    else:
        layer = _LAYER.match(text)
        parts = (text[layer.end() :] if layer else text).split(".")
        names = [data["modules"].get(part, part).split() for part in parts if part not in _AROUND]
        inside = [place for place in modules if layer is None or place[0] == int(layer[1])]
        found = [place for place in inside if _is_under(place[1], names)]
        # Layers that only guess tokens stand behind the last one.
        is_known = bool(found) or not inside or parts[-1] in data["unquantized"]
        is_known |= any(word in parts[-1] for word in ("norm", "embed"))
    if not is_known:
        raise _Unknown(f"{key} {text}")
    return found


def _is_under(path: str, names: Sequence[Sequence[str]]) -> bool:
    """Return whether some parts of a path in a row have the given names."""
    parts = path.split(".")
    return any(
        all(part in some for part, some in zip(parts[at:], names, strict=False))
        for at in range(len(parts) - len(names) + 1)
    )


def _compressed(config: Mapping[str, Any], compute: str) -> tuple[float, str]:
    """Return bytes of a weight and the type that computes, where all groups have the same."""
    groups = _object(config, "config_groups") or {}
    kinds = []
    for name in groups:
        group = _object(groups, name) or {}
        weights, inputs = _object(group, "weights") or {}, _object(group, "input_activations") or {}
        weight_bytes = _of_bits(weights.get("num_bits")) + _scale_bytes(weights)
        kinds.append((weight_bytes, inputs.get("num_bits"), weights.get("type")))
    if not kinds or any(kind != kinds[0] for kind in kinds):
        raise _Unknown("config_groups")
    weight_bytes, bits, kind = kinds[0]
    if bits not in (None, 16):
        if (weight_bytes, bits) != (1.0, 8):
            raise _Unknown("input_activations")
        compute = "fp8" if kind == "float" else "int8"
    return weight_bytes, compute


def _scale_bytes(config: Mapping[str, Any]) -> float:
    """Return the bytes of scales for each weight; a scale for a whole row or matrix is none."""
    group = _size(config, "group_size", 0, least=-1)
    return _SCALE_BYTES / group if group > 0 else 0.0


def _of_bits(bits: Any) -> float:
    if bits not in (2, 3, 4, 8, 16):
        raise _Unknown(f"bits {bits}")
    return float(bits) / 8
