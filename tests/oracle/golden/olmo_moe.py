# SPDX-License-Identifier: Apache-2.0
"""Writes olmo_moe.txt: losses and gradients of olmo_moe.lua, by JAX in float64.

Written from the language's description alone; run it only to make the file anew:
    pip install jax && python olmo_moe.py > olmo_moe.txt
Numbers of a parameter follow from its address and the element's index, see `numbers`; test_golden.c does the same.
"""
import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

VOCAB, WIDTH, SEQUENCE, SEQUENCES, EPS = 11, 8, 9, 2, 1e-6
HEADS, KV_HEADS, DIM, THETA = 4, 2, 4, 100.0
EXPERTS, TOP_K, EXPERT, SHARED, DENSE = 5, 2, 3, 4, 5
TOKENS = SEQUENCE * SEQUENCES

SHAPES = {"embedding.w": (VOCAB, WIDTH), "embedding.norm.gain": (WIDTH,)}
SHAPES |= {"norm.gain": (WIDTH,), "head.w": (WIDTH, VOCAB)}
for i in (1, 2):
    a = f"layers.{i}."
    SHAPES |= {
        a + "attention.w_q": (WIDTH, HEADS, DIM), a + "attention.w_k": (WIDTH, KV_HEADS, DIM),
        a + "attention.w_v": (WIDTH, KV_HEADS, DIM), a + "attention.w_o": (HEADS, DIM, WIDTH),
        a + "attention.q_norm.gain": (DIM,) if i == 1 else (HEADS, DIM),
        a + "attention.k_norm.gain": (DIM,) if i == 1 else (KV_HEADS, DIM),
        a + "attention_out_norm.gain": (WIDTH,), a + "ffn_out_norm.gain": (WIDTH,),
    }
SHAPES |= {
    "layers.1.ffn.w_in": (WIDTH, 2, DENSE), "layers.1.ffn.w_out": (DENSE, WIDTH),
    "layers.2.ffn.router.w_score": (WIDTH, EXPERTS),
    "layers.2.ffn.experts.w_in": (EXPERTS, WIDTH, 2, EXPERT), "layers.2.ffn.experts.w_out": (EXPERTS, EXPERT, WIDTH),
    "layers.2.ffn.shared.w_in": (WIDTH, 2, SHARED), "layers.2.ffn.shared.w_out": (SHARED, WIDTH),
}


def mixed(name, i):
    """A 32-bit hash of a name and a number."""
    x = 2166136261
    for byte in name.encode():
        x = (x ^ byte) * 16777619 % 2**32
    x ^= i * 2654435761 % 2**32
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ x >> 16


def numbers(name, shape):
    n = 1
    for size in shape:
        n *= size
    middle = 1.0 if name.endswith("gain") else 0.0
    return jnp.array([middle + (mixed(name, i) / 2**32 - 0.5) * 0.9 for i in range(n)]).reshape(shape)


def rms_norm(x, gain, axes=(-1,)):
    return x / jnp.sqrt(jnp.mean(x * x, axis=axes, keepdims=True) + EPS) * gain


def rope(x, positions):
    """x [T, H, DIM]; feature i turns with feature i + DIM / 2."""
    half = DIM // 2
    angle = positions[:, None, None] * THETA ** (-jnp.arange(half) * 2.0 / DIM)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle)], -1)


def attention(p, a, x, data, full):
    q = jnp.einsum("td,dhn->thn", x, p[a + "w_q"])
    k = jnp.einsum("td,dhn->thn", x, p[a + "w_k"])
    v = jnp.einsum("td,dhn->thn", x, p[a + "w_v"])
    axes = (-2, -1) if full else (-1,)
    q = rope(rms_norm(q, p[a + "q_norm.gain"], axes), data["positions"])
    k = rope(rms_norm(k, p[a + "k_norm.gain"], axes), data["positions"])
    k, v = jnp.repeat(k, HEADS // KV_HEADS, 1), jnp.repeat(v, HEADS // KV_HEADS, 1)
    logits = jnp.einsum("qhn,khn->hqk", q, k) * DIM**-0.5
    t, s = jnp.arange(TOKENS), data["segments"]
    seen = (s[:, None] == s[None, :]) & (t[None, :] <= t[:, None])
    share = jax.nn.softmax(jnp.where(seen, logits, -jnp.inf), -1)
    return jnp.einsum("hqk,khn,hnd->qd", share, v, p[a + "w_o"])


def mlp(x, w_in, w_out):
    h = jnp.einsum("td,dgh->tgh", x, w_in)
    return (jax.nn.silu(h[:, 0]) * h[:, 1]) @ w_out


def experts(p, a, x, valid, losses):
    logits = x @ p[a + "router.w_score"]
    score = jax.nn.softmax(logits, -1)
    weights, ids = jax.lax.top_k(score, TOP_K)
    weights = 2 * weights / jnp.sum(weights, -1, keepdims=True)
    chosen = jax.nn.one_hot(ids, EXPERTS)
    load = jnp.sum(chosen * valid[:, None, None], (0, 1))
    prob = jnp.sum(score * valid[:, None], 0) / jnp.sum(valid)
    losses[a + "router.balance"] = 0.2, EXPERTS * jnp.sum(load / jnp.sum(load) * prob)
    z = jax.nn.logsumexp(logits, -1) ** 2
    losses[a + "router.z"] = 0.05, jnp.sum(z * valid) / jnp.sum(valid)
    every = jnp.stack([mlp(x, p[a + "experts.w_in"][e], p[a + "experts.w_out"][e]) for e in range(EXPERTS)], 1)
    y = jnp.einsum("tke,tk,ted->td", chosen, weights, every)
    return y + mlp(x, p[a + "shared.w_in"], p[a + "shared.w_out"])


def loss(p, data):
    losses = {}
    valid = (data["labels"] >= 0) * 1.0
    x = rms_norm(3 * p["embedding.w"][data["tokens"]], p["embedding.norm.gain"])
    for i in (1, 2):
        a = f"layers.{i}."
        x = x + rms_norm(attention(p, a + "attention.", x, data, i == 2), p[a + "attention_out_norm.gain"])
        f = mlp(x, p[a + "ffn.w_in"], p[a + "ffn.w_out"]) if i == 1 else experts(p, a + "ffn.", x, valid, losses)
        x = x + rms_norm(f, p[a + "ffn_out_norm.gain"])
    logits = rms_norm(x, p["norm.gain"]) @ p["head.w"]
    lse = jax.nn.logsumexp(logits, -1)
    picked = jnp.take_along_axis(logits, jnp.maximum(data["labels"], 0)[:, None], -1)[:, 0]
    losses["ce"] = 1.0, jnp.sum((lse - picked) * valid) / jnp.sum(valid)
    losses["z"] = 0.03, jnp.sum(lse**2 * valid) / jnp.sum(valid)
    return sum(weight * value for weight, value in losses.values()), losses


def main():
    tokens = [mixed("tokens", t) % VOCAB for t in range(TOKENS)]
    starts = [t % SEQUENCE == 0 or t in (5, 12, 13) for t in range(TOKENS)]
    segments = [sum(starts[: t + 1]) - 1 for t in range(TOKENS)]
    positions = [t - max(s for s in range(t + 1) if starts[s]) for t in range(TOKENS)]
    follows = [t + 1 < TOKENS and not starts[t + 1] for t in range(TOKENS)]
    labels = [tokens[t + 1] if follows[t] and t not in (2, 15) else -1 for t in range(TOKENS)]
    inputs = dict(tokens=tokens, segments=segments, positions=positions, labels=labels)
    data = {name: jnp.array(values) for name, values in inputs.items()}
    params = {name: numbers(name, shape) for name, shape in SHAPES.items()}
    (total, losses), gradients = jax.value_and_grad(loss, has_aux=True)(params, data)
    for name, values in inputs.items():
        print("input", name, len(values), *values)
    print("total", repr(float(total)))
    for name, (weight, value) in losses.items():
        print("loss", name, repr(float(value)))
    for name in SHAPES:
        flat = gradients[name].reshape(-1)
        print("gradient", name, len(flat), *[repr(float(g)) for g in flat])


main()
