"""Tensors by role: what lowering shards."""

from rapid_llm import model


def shapes(name, layer=0):
    found = model.load(name)
    weights = model.block_weights(found.blocks[found.pattern[layer]], found.hidden_size)
    return {weight.role: (weight.shape, weight.copies) for weight in weights}


def test_llama_block():
    assert shapes("llama-3.1-70b") == {
        "attention.q": ((8192, 8192), 1),
        "attention.k": ((8192, 1024), 1),
        "attention.v": ((8192, 1024), 1),
        "attention.o": ((8192, 8192), 1),
        "mlp.gate": ((8192, 28672), 1),
        "mlp.up": ((8192, 28672), 1),
        "mlp.down": ((28672, 8192), 1),
        "norm": ((8192,), 2),
    }


def test_experts_are_copies_of_one_shape():
    deepseek = shapes("deepseek-v3", layer=3)
    assert deepseek["moe.expert.up"] == ((7168, 2048), 256)
    assert deepseek["moe.shared.up"] == ((7168, 2048), 1)
    assert deepseek["moe.router"] == ((7168, 256), 1)
    assert deepseek["mla.kv_up"] == ((512, 128 * 256), 1)
    assert "mlp.up" in shapes("deepseek-v3", layer=2)


def test_biases_follow_their_matrices():
    gpt = shapes("gpt-22b")
    assert gpt["mlp.up.bias"] == ((4 * 6144,), 1)
    assert gpt["norm.bias"] == gpt["norm"] == ((6144,), 2)


def test_outer_tensors_of_tied_and_untied_models():
    tied = {w.role: w.shape for w in model.outer_weights(model.load("gpt-22b"))}
    untied = {w.role: w.shape for w in model.outer_weights(model.load("llama-2-7b"))}
    assert tied == {
        "embedding": (51200, 6144),
        "position": (2048, 6144),
        "final_norm": (6144,),
        "final_norm.bias": (6144,),
    }
    assert untied == {"embedding": (32000, 4096), "final_norm": (4096,), "head": (4096, 32000)}


def test_groups_are_named_and_largest_first():
    groups = model.parameters_by_group(model.load("deepseek-v3"))
    assert list(groups)[:3] == ["routed experts", "attention", "shared experts"]
