"""What names in a report say: CUDA API calls, NVTX ranges, cuBLAS `nvjet` and mangled kernels.

Pure text work. Nothing here raises on a name it does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

#: Of a name; the longest that compilers write have some thousand. No pattern sees more.
MOST_LETTERS: Final = 4_096
#: Of a range's name, without what PyTorch counts up in it: programs write whole prompts.
MOST_RANGE_LETTERS: Final = 512

# Runtime calls carry the CUDA version that introduced them (3020 = 3.2), after the suffix of the
# per-thread default stream: cudaLaunchKernel_ptsz_v7000. Their own `_v2` has one digit and is part
# of the name. Driver calls have their ABI version before that suffix: cuMemcpyHtoD_v2_ptds.
# Source: cupti_runtime_cbid.h and cupti_driver_cbid.h of CUDA 13.0.
_RUNTIME_SUFFIX: Final = re.compile(r"(?:_ptsz|_ptds)?(?:_v[0-9]{4,})?(?:_ptsz|_ptds)?\Z")
_OTHER_SUFFIX: Final = re.compile(r"(?:_v[0-9]+)?(?:_ptsz|_ptds)?\Z")

# What torch.autograd.profiler.emit_nvtx appends to an operator's name, in this order: seq, op_id,
# sizes, input_op_ids. Source: getNvtxStr in torch/csrc/profiler/util.cpp. Each has one `=`: they
# are looked at one by one from the end, since one expression for all began again at each of them.
_COUNTER_BEGINS: Final = re.compile(r",\s*(?:seq|op_id|sizes|input_op_ids)\s*=")
_COUNTER: Final = re.compile(
    r",\s*(?:(?:seq|op_id)\s*=\s*-?[0-9]+|(?:sizes|input_op_ids)\s*=\s*\[[^=]*\])\s*"
)

# A number inside a word says what the thing is (AllToAll4D); any other number may be counting.
_RUNNING_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9])[0-9]+|(?<![0-9])[0-9]+(?![A-Za-z0-9])")

# Ids of requests: a UUID, or at least five hexadecimal digits with a letter behind a decimal one.
# So no word that ends in a number is one (`face1`, `added12`), and none of `fp8`, `b200`, `e4m3`.
_ID: Final = re.compile(
    r"(?<![A-Za-z0-9])(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|0x[0-9a-fA-F]+|(?=[a-fA-F]*[0-9]+[a-fA-F])[0-9a-fA-F]{5,})(?![A-Za-z0-9])"
)
_UUID_OR_HEX: Final = "<id>"


@lru_cache(maxsize=1 << 14)  # a thousand ranks have the same names
def strip_api_version(name: str) -> str:
    """Return the name of a CUDA API call as documented.

    Removes the version (`cudaLaunchKernel_v7000`, `cuMemAlloc_v2`) and the mark of the per-thread
    default stream (`cudaMemcpyAsync_ptsz_v7000`, `cuMemcpyHtoD_v2_ptds`). A runtime call keeps a
    `_v2` of its own (`cudaStreamGetCaptureInfo_v2_v11030`).
    """
    suffix = _RUNTIME_SUFFIX if name.startswith("cuda") else _OTHER_SUFFIX
    return suffix.sub("", name, count=1) or name


def normalize_range(name: str) -> str:
    """Return an NVTX range's name without what PyTorch counts up in it.

    Removes a tail of `, seq = N`, `, op_id = N`, `, sizes = [...]` and `, input_op_ids = [...]`
    (`aten::mul, seq = 45643, op_id = 991912` -> `aten::mul`), and space around the name.
    Idempotent.
    """
    return without_counters(name.strip()).strip()


def without_counters(name: str) -> str:
    """Return the same with the space around the name."""
    end = len(name)
    for start in reversed(_counters(name)):
        if not _COUNTER.fullmatch(name, start, end):
            break
        end = start
    return name[:end]


def _counters(name: str) -> list[int]:
    """Return where what looks like a counter begins."""
    return [match.start() for match in _COUNTER_BEGINS.finditer(name)] if "=" in name else []


def bounded_name(name: str) -> str:
    """Return a name of at most `MOST_LETTERS`: what is longer ends in a digest of the whole."""
    return name if len(name) <= MOST_LETTERS else _cut(name, MOST_LETTERS)


def bounded_range(text: str) -> str:
    """Return the text of a range whose name has at most `MOST_RANGE_LETTERS`.

    A longer name is cut as `step_key` writes it: repetitions of one step stay repetitions, and
    names that differ in more than numbers stay different. Of counters those stay that fit into
    `MOST_LETTERS`.
    """
    name = without_counters(text)
    counters = text[len(name) :]
    if len(name) > MOST_RANGE_LETTERS:
        name = step_key(name)
        name = _cut(name, MOST_RANGE_LETTERS) if len(name) > MOST_RANGE_LETTERS else name
    ends = [*_counters(counters), len(counters)]
    return name + counters[: max(end for end in ends if len(name) + end <= MOST_LETTERS)]


#: Letters, since digits are counted up, of which no three in a row are part of a word.
_DIGEST_LETTERS: Final = str.maketrans("0123456789abcdef", "bcdfghjkmnqrvwxz")


def _cut(name: str, most_n: int) -> str:
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    end = "..." + digest.hex("-").translate(_DIGEST_LETTERS)
    return name[: most_n - len(end)] + end


def step_key(name: str) -> str:
    """Return what all repetitions of one step share: numbers as `#`, hexadecimal ids as `<id>`.

    `step 12`, `iteration_7` and `execute_context_2(153)_generation_0(0)` repeat under one key, and
    so do `req 3f2504e0-4f89-11d3-9a0c-0305e82c3301` and `req 9a0c3`; a number inside a word is kept
    (`AllToAll4D`). Idempotent.
    """
    return _RUNNING_NUMBER.sub("#", _ID.sub(_UUID_OR_HEX, normalize_range(name)))


_NVJET: Final = re.compile(r"\s*nvjet_([A-Za-z0-9_]+)")
_ARCH: Final = re.compile(r"sm[0-9]+[a-z]?")
_PAIR: Final = re.compile(r"([0-9]{1,6})x([0-9]{1,6})(f?)")
_TRIPLE: Final = re.compile(r"([0-9]{1,6})x([0-9]{1,6})x([0-9]{1,6})")
_COUNT: Final = re.compile(r"[0-9]{1,6}")
_LAYOUT: Final = re.compile(r"[NTC]{3,4}")
_SCALE: Final = re.compile(r"[ABCD](?:vec|blk)[0-9]+\w*")
_EPILOGUE: Final = re.compile(r"(?:relu|gelu|bias|aux)[a-z]*")
_KNOWN_WORD: Final = re.compile(
    rf"[vh]|2cta|bz|badd|coop[AB]|splitK|{_SCALE.pattern}|{_EPILOGUE.pattern}"
)

#: Letters of the data type prefix. cuBLAS documents none of them for nvjet: s, d, h, i and b
#: follow the names of its other routines; t, q, r and o are inferred from observed problems.
_TYPE_LETTERS: Final = {
    "s": "fp32",
    "d": "fp64",
    "h": "fp16",
    "t": "bf16",
    "b": "int8",
    "i": "int32",
    "q": "fp8_e4m3",
    "r": "fp8_e5m2",
    "o": "fp4_e2m1",
}
_TYPED: Final = ("a_type", "b_type", "c_type", "compute_type", "d_type")
_SIZED: Final = ("tile_m", "tile_n", "k_tile", "stages", "cluster_m", "cluster_n")


@dataclass(frozen=True)
class NvjetFields:
    """What the name of an `nvjet` kernel (a GEMM generated for cuBLAS and cuBLASLt) says.

    NVIDIA does not document these names. The order of the parts is that of the format strings
    inside libcublasLt (`nvjet_sm%d_%s_%dx%d_%dx%d_%dx%d%s_%c_...%c%c%c`). Certain: `arch`, the
    flags that are words (`splitK`, `bias`, `coopA`, `2cta`, block scales). Inferred: the letters of
    the types, `k_tile`, `stages`, `cluster_*`, `beta`, `layout`. Unknown: what `order` selects.
    A part that is absent or not understood is None or empty; unread parts are in `other`.

    Attributes (all are columns of the table `nvjet` in the manifest):
        a_type: Three letters mean A = B, compute, C = D; five mean A, B, C, compute, D.
        arch: `sm90`, `sm100`, ...; older releases of cuBLAS leave it out.
        tile_m: In cuBLAS's column-major view. Callers with row-major matrices (PyTorch) swap A and
            B, so that this counts output features, and `tile_n` tokens.
        k_tile: The blog that spread these names calls the pair `k_tile` x `stages` "block tile,
            threads"; cuBLASLt's enumeration of stages writes K-tile x pipeline stages in the same
            form, which is the reading here.
        epilogue: `bias`, `gelubias`, `relu`, `auxh`, ...
        scales: `Avec16UE4M3`, `Bvec32UE8M0`, `Ablk128`, ...
        layout: N as stored, T transposed (`TNN`, `TNNN`).
    """

    data_types: str
    a_type: str | None = None
    b_type: str | None = None
    c_type: str | None = None
    compute_type: str | None = None
    d_type: str | None = None
    arch: str | None = None
    tile_m: int | None = None
    tile_n: int | None = None
    k_tile: int | None = None
    stages: int | None = None
    cluster_m: int | None = None
    cluster_n: int | None = None
    order: str | None = None
    two_cta: bool = False
    beta: str | None = None
    epilogue: tuple[str, ...] = ()
    bias: bool = False
    scales: tuple[str, ...] = ()
    cooperative: str | None = None
    split_k: bool = False
    layout: str | None = None
    other: tuple[str, ...] = ()


def decode_nvjet(name: str) -> NvjetFields | None:
    """Return the fields of an `nvjet` kernel's name, or None for any other name.

    Example:
        `nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN`: bf16 in and out, fp32 sums, output tile
        192 x 192, K-tile 64 in 4 stages, clusters of 2 x 1, bias, A transposed.
    """
    match = _NVJET.match(name)
    tokens = [token for token in match[1].split("_") if token] if match else []
    if not tokens:
        return None
    arch = tokens.pop(0) if _ARCH.fullmatch(tokens[0]) else None
    data_types = tokens.pop(0) if tokens and tokens[0].isalpha() else ""
    layout = tokens.pop() if tokens and _LAYOUT.fullmatch(tokens[-1]) else None
    sizes, words = _read_sizes(tokens)
    epilogue = tuple(word for word in words if _EPILOGUE.fullmatch(word))
    return NvjetFields(
        data_types,
        arch=arch,
        **dict(zip(_TYPED, _read_types(data_types), strict=True)),
        **dict(zip(_SIZED, sizes, strict=True)),
        order=_first(words, "v", "h"),
        two_cta="2cta" in words,
        beta=_first(words, "bz", "badd"),
        epilogue=epilogue,
        bias=any("bias" in word for word in epilogue),
        scales=tuple(word for word in words if _SCALE.fullmatch(word)),
        cooperative=(_first(words, "coopA", "coopB") or "")[-1:] or None,
        split_k="splitK" in words,
        layout=layout,
        other=tuple(word for word in words if not _KNOWN_WORD.fullmatch(word)),
    )


def _read_types(data_types: str) -> list[Any]:
    """Return the types of A, B, C, the accumulation and D."""
    letters = data_types
    if len(letters) == 3:
        letters = letters[0] + letters[0] + letters[2] + letters[1] + letters[2]
    return [_TYPE_LETTERS.get(letter) for letter in letters] if len(letters) == 5 else [None] * 5


def _read_sizes(tokens: list[str]) -> tuple[list[Any], list[str]]:
    """Return tile, K-tile and stages, cluster (six numbers), and the tokens that are words."""
    sizes: list[int | None] = []
    words: list[str] = []
    for token in tokens:
        pair, triple = _PAIR.fullmatch(token), _TRIPLE.fullmatch(token)
        if pair and len(sizes) in (0, 2, 4):
            sizes += [int(pair[1]), int(pair[2])]
            words += [pair[3]] if pair[3] else []
        elif triple and not sizes:  # sm120 writes the tile with K, then the stages: 64x64x128_3
            sizes += [int(size) for size in triple.groups()]
        elif _COUNT.fullmatch(token) and len(sizes) == 3:
            sizes.append(int(token))
        else:
            words.append(token)
    return sizes + [None] * (6 - len(sizes)), words


def _first(words: list[str], *wanted: str) -> str | None:
    return next((word for word in words if word in wanted), None)


_PREFIX: Final = "_Z"
_TYPES: Final = {
    "b": "bool",
    "i": "int",
    "j": "unsigned int",
    "l": "long",
    "m": "unsigned long",
}
#: A number as template argument; a value of an enumeration, behind the name of its type; and how
#: many characters the next part of a name has.
_NUMBER: Final = re.compile(r"L([bijlm])n?(\d+)E")
_ENUMERATOR: Final = re.compile(r"E(\d+)E")
_LENGTH: Final = re.compile(r"[1-9]\d{0,3}(?!\d)")
#: What stands for an earlier part, or for a template's argument.
_REPEATED: Final = re.compile(r"[ST][0-9A-Z]*_")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")


@lru_cache(maxsize=1 << 14)
def unmangled(name: str) -> str:
    """Return a mangled name as patterns of demangled ones know it; any other as it is.

    `_ZN6marlin6MarlinILi4ELb1EEEv` becomes `marlin::Marlin<(int)4, (bool)1>`. Names and numbers in
    their order are what rules look for: return types, repeated types and parameters that are no
    names are left out.
    """
    if not name.startswith(_PREFIX):
        return name
    parts: list[str] = []
    at, before = len(_PREFIX), ""
    while at < len(name):
        at, part, kind = _next(name, at, before)
        joint = "::" if kind == before == "name" else ", " if kind == before == "number" else ""
        parts.append(joint + part)
        before = kind
    return "".join(parts).strip()


def _next(name: str, at: int, before: str) -> tuple[int, str, str]:
    """Return where the part at a place ends, how it reads, and its kind."""
    if number := _NUMBER.match(name, at):
        return number.end(), f"({_TYPES[number[1]]}){number[2]}", "number"
    if before == "name" and (value := _ENUMERATOR.match(name, at)):
        return value.end(), f"){value[1]}", "number"
    if repeated := _REPEATED.match(name, at):
        return repeated.end(), " ", ""
    if length := _LENGTH.match(name, at):
        end = length.end() + int(length[0])
        if _IDENTIFIER.fullmatch(name, length.end(), end):
            return end, name[length.end() : end], "name"
        return length.end(), " ", ""
    if before == "name" and name[at] == "I":
        return at + 1, "<", ""
    if before == "number" and name[at] == "E":
        return at + 1, ">", ""
    return at + 1, " " if before else "", ""
