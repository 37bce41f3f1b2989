"""What llama.cpp takes for ``-hfd REPO:QUANT``: its rules on listings as they are published."""

import pytest

from scripts.gguf_resolve import Found, draft, rivals

ORDINARY = ["README.md", "X-DFlash-Q4_K_M.gguf", "X-DFlash-Q8_0.gguf", "X-DFlash-bf16.gguf"]
SIDECARS = ["dflash-X-Q4_K_M.gguf", "dflash-X-Q8_0.gguf", "dflash-X-bf16.gguf"]
NESTED = ["Q8_0/dflash-X-Q8_0.gguf", "Q8_0/X-Q8_0.gguf", "dflash-X-Q4_K_M.gguf", "X-Q4_K_M.gguf"]


@pytest.mark.parametrize(
    ("listing", "quant", "found"),
    [
        (ORDINARY, "Q8_0", Found("X-DFlash-Q8_0.gguf", False, True)),
        (ORDINARY, "q8_0", Found("X-DFlash-Q8_0.gguf", False, True)),
        (ORDINARY, "F16", Found("X-DFlash-bf16.gguf", False, True)),
        (ORDINARY, None, Found("X-DFlash-Q4_K_M.gguf", False, True)),
        (ORDINARY[2:], None, Found("X-DFlash-Q8_0.gguf", False, True)),
        (ORDINARY[3:], None, Found("X-DFlash-bf16.gguf", False, True)),
        (ORDINARY, "Q6_K", None),
        (SIDECARS, "Q8_0", Found("dflash-X-Q8_0.gguf", True, True)),
        (SIDECARS, "Q6_K", Found("dflash-X-Q4_K_M.gguf", True, False)),
        (SIDECARS, "Q5_K_M", Found("dflash-X-Q4_K_M.gguf", True, False)),
        (SIDECARS, "BF16", Found("dflash-X-bf16.gguf", True, True)),
        (ORDINARY + SIDECARS, "Q8_0", Found("dflash-X-Q8_0.gguf", True, True)),
        (ORDINARY + SIDECARS, None, Found("dflash-X-Q4_K_M.gguf", True, True)),
        (NESTED, "Q8_0", Found("Q8_0/dflash-X-Q8_0.gguf", True, True)),
        (NESTED, "Q4_K_M", Found("dflash-X-Q4_K_M.gguf", True, True)),
        (["Q8_0/dflash-X-Q8_0.gguf"], "Q8_0", None),
        (["X-DFlash_Q8_0_final.gguf"], "Q8_0", None),
        (["DFlash-X-Q8_0.gguf"], "Q8_0", Found("DFlash-X-Q8_0.gguf", False, True)),
        (["X-Q8_0-00002-of-00002.gguf", "X-Q8_0-00001-of-00002.gguf"], "Q8_0",
         Found("X-Q8_0-00001-of-00002.gguf", False, True)),
        ([*ORDINARY, "preset.ini"], "Q8_0", None),
        (["README.md"], None, None),
    ],
)  # fmt: skip
def test_the_file_that_is_taken(listing: list[str], quant: str | None, found: Found | None) -> None:
    assert draft(listing, quant) == found


def test_sidecars_of_other_kinds_are_named() -> None:
    assert rivals([*ORDINARY, "mtp-X-Q8_0.gguf", "dspark-X.gguf", "mtp-notes.md"]) == [
        "mtp-X-Q8_0.gguf",
        "dspark-X.gguf",
    ]
