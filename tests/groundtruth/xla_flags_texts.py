"""Strategies for values of XLA_FLAGS that are likely to reach a rule: good values, near misses, and noise.

Not a test. Invariant: what is drawn depends on the catalog only, so that one strategy serves every jaxlib.
"""

from __future__ import annotations

from hypothesis import strategies as st

from xla_flags import Catalog, FlagKind, FlagSpec

BLANKS = st.text(" \t\n\v\f\r", max_size=2)
NOISE = st.text("aAzZ09+-_=,:;@/.'\"\\ \t\v$#é\u00a0", max_size=8)
LIMITS = [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1]
INTS = st.one_of(st.integers(-3, 40), st.sampled_from(LIMITS)).map(str)
NUMBERS = st.one_of(
    INTS,
    st.tuples(BLANKS, st.sampled_from(["", "+", "-", "+-", "0", "00"]), INTS, BLANKS).map("".join),
    st.sampled_from(["", "x", "0x10", "1e3", "1_0", "1 2", "5.", "\u0663", "1" * 30, "0" * 30]),
)
DIGITS = st.text("0123456789", max_size=12)
DECIMALS = st.tuples(
    st.sampled_from(["", "+", "-", "++", " "]),
    DIGITS,
    st.sampled_from(["", ".", ".5", ".000001", ".."]),
    DIGITS,
    st.sampled_from(["", "e5", "E-40", "e+38", "e", "e-", "e-46", "e308", "f", "e999999999999"]),
).map("".join)
HEXADECIMALS = st.tuples(
    st.sampled_from(["", "+", "-"]),
    st.sampled_from(["0x", "0X"]),
    st.text("0123456789abcdefABCDEF", max_size=9),
    st.sampled_from(["", ".", ".8", ".ffffff8", ".0000001"]),
    st.sampled_from(["", "p1", "P-2", "p+120", "p-149", "p-150", "p", "p-"]),
).map("".join)
SPECIAL = ["inf", "-INF", "Infinity", "infinit", "nan", "NAN(a_1)", "nan(", "nan()", "-nan(-)"]
# Just between two floats, and a little beside it.
TIES = st.tuples(st.integers(2**24, 2**25 - 1), st.sampled_from(["", ".0", ".0001"])).map(
    lambda tie: f"{tie[0] | 1}{tie[1]}"
)
FLOATS = st.one_of(NUMBERS, DECIMALS, HEXADECIMALS, TIES, st.floats().map(repr), st.sampled_from(SPECIAL))
BOOLS = st.sampled_from(
    ["true", "false", "True", "FALSE", "tRuE", "1", "0", "", "yes", "01", " true", "2", "t"]
)
DURATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["1", "0", ".5", "5.", "1.25", "", ".", "9223372036854775807", "9223372036854775808"]
        ),
        st.sampled_from(["ns", "us", "ms", "s", "m", "h", "", "S", "d", " s"]),
    ).map("".join),
    max_size=3,
).flatmap(lambda parts: st.sampled_from(["", "+", "-", "--"]).map(lambda sign: sign + "".join(parts)))
STRINGS = st.one_of(NOISE, st.sampled_from(["avx2", "/tmp/x", ".*", "a,b=c", ""]))


def recased(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from([text, text, text.lower(), text.title(), text.swapcase()])


def pieces(each: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(each, max_size=4).map(",".join)


def members(flag: FlagSpec) -> st.SearchStrategy[str]:
    """A member of the flag's enum, in some spelling, or something like it."""
    assert flag.enum is not None
    names = [*flag.enum.numbers, *flag.words]
    stems = [name.removeprefix(flag.prefix) for name in names]
    last = [name.rpartition("_")[2] for name in names]
    other = ["BOGUS", "ALL", "none", "", *map(str, [*flag.enum.numbers.values(), 99])]
    likely = st.sampled_from(names + stems).flatmap(recased)
    return st.one_of(likely, likely, likely, st.sampled_from(other + last).flatmap(recased))


def signed_members(flag: FlagSpec) -> st.SearchStrategy[str]:
    def with_signs(signs: list[str]) -> st.SearchStrategy[str]:
        return pieces(st.tuples(BLANKS, st.sampled_from(signs), members(flag), BLANKS).map("".join))

    return st.one_of(with_signs([""]), with_signs(["+", "-"]), with_signs(["", "+", "-", "++", "+ "]))


def values(flag: FlagSpec) -> st.SearchStrategy[str]:
    """Values for a flag, good and bad."""
    kind = flag.kind
    if kind.takes_bool:
        return BOOLS
    if kind in (FlagKind.ENUM, FlagKind.ENUM_ANY_CASE, FlagKind.WORD, FlagKind.WORD_ANY_CASE):
        return members(flag)
    if kind is FlagKind.ENUM_LIST:
        return signed_members(flag)
    if kind is FlagKind.ASYNC_COLLECTIVES:
        return pieces(members(flag))
    if kind is FlagKind.COLLECTIVE_FILTERS:
        name = st.sampled_from(["all", "All_Reduce", "all-gather", "ALLTOALL", "NOOP", "x", "", " allreduce"])
        types = st.sampled_from(["f32", "BF16", "pred", "11", "0", "99", "-1", " 11", "x", "", "4294967307"])
        return pieces(st.lists(st.one_of(name, INTS, types), max_size=4).map(":".join) | name)
    simple = {
        FlagKind.INT32: NUMBERS,
        FlagKind.INT64: NUMBERS,
        FlagKind.FLOAT: FLOATS,
        FlagKind.DURATION: DURATIONS,
        FlagKind.FUEL: pieces(st.tuples(st.sampled_from(["a", "b", "", "a=", "c "]), NUMBERS).map("=".join)),
        FlagKind.PASS_LIST: pieces(
            st.tuples(st.sampled_from(["", "a", "@", "a:", ":", "a/b", "@@"]), st.one_of(NUMBERS, NOISE)).map(
                "".join
            )
        ),
        FlagKind.THUNK_ID_RANGES: pieces(
            st.one_of(INTS, st.tuples(st.one_of(NUMBERS, INTS), st.one_of(NUMBERS, INTS)).map(":".join))
        ),
        FlagKind.MAP: pieces(
            st.lists(st.sampled_from(["a", "b", "", " c", "rtt_us"]), max_size=3).map("=".join)
        ),
    }
    return st.one_of(simple[kind], simple[kind], NOISE) if kind in simple else STRINGS


def written(value: str) -> st.SearchStrategy[str]:
    """A value as it may stand in the text: bare, or quoted, well or badly."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    bare = value if not set(value) & set(" \t\r\n") else f"'{value}'"
    ways = [bare, bare, bare, value, f"'{value}'", f'"{escaped}"', f'"{value}"', f"'{value}", f'"{escaped}\\']
    return st.sampled_from(ways)


def tokens(catalog: Catalog) -> st.SearchStrategy[str]:
    """One piece of text, mostly a known flag with a value."""
    special = [
        each for each in catalog.flags.values() if each.kind not in ("bool", "int32", "int64", "string")
    ]
    flags = st.one_of(
        st.sampled_from(special), st.sampled_from(special), st.sampled_from([*catalog.flags.values()])
    )
    set_flag = flags.flatmap(
        lambda flag: values(flag).flatmap(written).map(lambda value: f"--{flag.name}={value}")
    )
    bare = flags.map(lambda flag: f"--{flag.name}")
    odd = st.one_of(
        st.sampled_from(
            ["--", "-", "--help", "junk", "#", "--xla_flags_reset", "\\", "--=", "--bogus", "\u2013-x"]
        ),
        st.tuples(flags, st.sampled_from(["-{}", "---{}", "--no{}", "--{}x", "{}", "--{} true"])).map(
            lambda pair: pair[1].format(pair[0].name)
        ),
        NOISE,
    )
    return st.one_of(*[set_flag] * 8, bare, odd)


def texts(catalog: Catalog) -> st.SearchStrategy[str]:
    """Values of the variable, without NUL. One or two flags mostly: the first bad value hides the rest."""
    separator = st.sampled_from([" ", " ", " ", "\n", "\t", "  ", "", "\r\n", "\v", "\u00a0"])
    each = st.lists(st.tuples(tokens(catalog), separator).map("".join), min_size=1, max_size=4)
    return each.map("".join)
