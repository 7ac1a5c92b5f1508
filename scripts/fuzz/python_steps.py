# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The steps of random Python programs: how a framework's user makes an update of `forward`.

A step reads `mask(p)`, or `model.weights()`: what a program has there is nothing, and what the reference has is w * mask.
"""

# JAX's steps.

RULES = [
    "optax.sgd({r})", "optax.sgd({r}, momentum=0.9)", "optax.sgd({r}, momentum=0.9, nesterov=True)", "optax.adam({r})",
    "optax.adamw({r}, weight_decay=0.1)", "optax.lamb({r})", "optax.lars({r})", "optax.rmsprop({r})", "optax.lion({r})",
    "optax.adafactor({r}, min_dim_size_to_factor=4)", "optax.adagrad({r}, initial_accumulator_value=0.0)", "optax.novograd({r})",
    "optax.fromage({r})", "optax.radam({r})", "optax.nadam({r})", "optax.adamax({r})", "optax.sm3({r})",
    "contrib.muon({r})", "optax.adabelief({r})", "optax.amsgrad({r})",
]
CLIPS = ["optax.clip_by_global_norm({c})", "optax.clip({c})", "optax.adaptive_grad_clip({c})", "optax.clip_by_block_rms({c})",
         "optax.normalize_by_update_norm()", "optax.centralize()", "optax.add_decayed_weights(0.05)"]


def optimizer(d):
    rule = d.choose(RULES)
    d.count("optimizer." + rule.partition("(")[0])
    rate = d.choose(["0.1", "0.1", "0.01", "0.0"])
    parts = [rule.format(r=rate)]
    if d.chance(0.5):
        clip = d.choose(CLIPS[:1] * 4 + CLIPS)
        d.count("clip." + clip.partition("(")[0])
        parts.insert(0, clip.format(c=d.choose(["0.01", "0.3", "5.0"])))
    return f"OPTIMIZER = optax.chain({', '.join(parts)})\n"


BEGIN = '''

def begin(params):
    return {"params": params, "opt": OPTIMIZER.init(params)}
'''

UPDATE = '''    updates, opt = OPTIMIZER.update(g, state["opt"], state["params"])
    new = optax.apply_updates(state["params"], updates)
'''

RETURN = '''    return {"params": new, "opt": opt}, loss, metrics
'''


def jax_plain(d):
    return optimizer(d) + BEGIN + '''

def step(state, batch, mask):
    def loss_of(p):
        loss, metrics, _ = forward(mask(p), batch)
        return loss, metrics

    (loss, metrics), g = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
''' + UPDATE + RETURN


def named_norms(d):
    """Numbers of gradients that the step returns."""
    lines = []
    for name in d.weights:
        if d.chance(0.6):
            text = d.choose(["norm(g['{n}'])", "total(absolute(g['{n}']))", "largest(absolute(g['{n}']).reshape(-1), 0)"])
            lines.append(f"    metrics = {{**metrics, 'g_{name}': {text.format(n=name)}}}\n")
    return "".join(lines)


def jax_returned(d):
    return jax_plain(d).replace(UPDATE, named_norms(d) + UPDATE)


def jax_clipped(d):
    """A norm of all gradients, in ways that people write it."""
    limit = d.choose(["0.01", "0.3", "5.0"])
    text = d.choose([
        "    n = optax.global_norm(g)\n    g = jax.tree.map(lambda a: a * jnp.minimum(1.0, {c} / (n + 1e-6)), g)\n",
        "    n = jnp.sqrt(squares(g))\n    g = jax.tree.map(lambda a: jnp.where(n < {c}, a, a / n * {c}), g)\n",
        "    n = jnp.sqrt(squares(g))\n    g = jax.tree.map(lambda a: a / jnp.maximum(n / {c}, 1.0), g)\n",
    ]).format(c=limit)
    return jax_plain(d).replace(UPDATE, text + "    metrics = {**metrics, 'norm': n}\n" + UPDATE)


def jax_copies(d):
    """An average and a late copy of the weights, made in the step."""
    text = jax_plain(d).replace('"opt": OPTIMIZER.init(params)}', '"opt": OPTIMIZER.init(params), "average": dict(params)}')
    average = d.choose(["optax.incremental_update(new, state['average'], 0.1)",
                        "jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, state['average'], new)",
                        "jax.tree.map(lambda a, b: a + 0.1 * (b - a), state['average'], new)"])
    return text.replace(RETURN, f"    average = {average}\n" + RETURN.replace('"opt": opt}', '"opt": opt, "average": average}'))


def jax_penalty(d):
    """The loss and the norm of its gradient."""
    size = d.choose(["jnp.sqrt(squares(h) + 1e-3)", "squares(h)"])
    return optimizer(d) + BEGIN + f'''

def step(state, batch, mask):
    def loss_of(p):
        loss, metrics, _ = forward(mask(p), batch)
        return loss, metrics

    def total_of(p):
        (loss, metrics), h = jax.value_and_grad(loss_of, has_aux=True)(p)
        size = {size}
        return loss + 0.1 * size, {{**metrics, "size": size}}

    (loss, metrics), g = jax.value_and_grad(total_of, has_aux=True)(state["params"])
''' + UPDATE + RETURN


def jax_inner(d):
    """The loss after a step on the loss of the batch in another order."""
    return optimizer(d) + BEGIN + f'''

def step(state, batch, mask):
    def first(p):
        loss, metrics, second = forward(mask(p), batch)
        return {d.choose(["second", "loss"])}

    def loss_of(p):
        h = {d.choose(["", "stop"])}(jax.grad(first)(p))
        q = jax.tree.map(lambda a, b: a - 0.3 * b, p, h)
        loss, metrics, _ = forward(mask(q), batch)
        return loss, metrics

    (loss, metrics), g = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
'''.replace("h = stop(jax.grad(first)(p))", "h = jax.tree.map(stop, jax.grad(first)(p))") + UPDATE + RETURN


def jax_balanced(d):
    """Two losses, weighted by the norms of their gradients."""
    name = d.choose(list(d.weights))
    return optimizer(d) + BEGIN + f'''

def step(state, batch, mask):
    def losses(p):
        loss, metrics, second = forward(mask(p), batch)
        return loss, second, metrics

    a = norm(jax.grad(lambda p: losses(p)[0])(state["params"])["{name}"])
    b = norm(jax.grad(lambda p: losses(p)[1])(state["params"])["{name}"])

    def loss_of(p):
        loss, second, metrics = losses(p)
        return loss + second * (a / (a + b + 0.01)), {{**metrics, "a": a, "b": b}}

    (loss, metrics), g = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
''' + UPDATE + RETURN


def jax_per_example(d):
    """Gradients of each example, clipped by their norms."""
    return optimizer(d) + BEGIN + f'''

def step(state, batch, mask):
    def loss_of(p, b):
        return forward(mask(p), b)[0]

    losses, g = jax.vmap(jax.value_and_grad(loss_of), (None, 0))(state["params"], batch)
    sizes = sum(jnp.sum(a.reshape(a.shape[0], -1) ** 2, 1) for a in jax.tree.leaves(g))
    factors = jnp.minimum(1.0, 0.1 / jnp.sqrt(sizes + 1e-6))
    g = jax.tree.map(lambda a: {d.choose(["jnp.tensordot(factors, a, 1)", "jnp.einsum('n,n...->...', factors, a)"])}, g)
    loss, metrics = jnp.mean(losses), {{"sizes": sizes}}
''' + UPDATE + RETURN


# PyTorch's steps.

TORCH_RULES = [
    "SGD(params, lr={r})", "SGD(params, lr={r}, momentum=0.9)", "SGD(params, lr={r}, momentum=0.9, weight_decay=0.1, nesterov=True)",
    "AdamW(params, lr={r}, weight_decay=0.1)", "Adam(params, lr={r})", "Adam(params, lr={r}, amsgrad=True)", "RMSprop(params, lr={r})",
    "RMSprop(params, lr={r}, momentum=0.9, centered=True)", "Adagrad(params, lr={r})", "Adamax(params, lr={r})",
    "NAdam(params, lr={r})", "RAdam(params, lr={r})", "Adadelta(params, lr={r})", "Adafactor(params, lr={r})",
]
TORCH_CLIPS = ["nn.utils.clip_grad_norm_(model.parameters(), {c})", "nn.utils.clip_grad_value_(model.parameters(), {c})",
               "nn.utils.clip_grad_norm_(model.parameters(), {c}, norm_type=1.0)"]


def torch_optimizer(d, averages=False):
    rule = d.choose(TORCH_RULES)
    d.count("optimizer." + rule.partition("(")[0])
    # sqrt(v) / rate is no number at a rate of 0.
    rate = "0.0" if d.chance(0.2) and d.allowed("zero_rate") else d.choose(["0.1", "0.1", "0.01"])
    return f"""AVERAGES = {averages}


def make(params):
    return torch.optim.{rule.format(r=rate)}


def train_step(model, optimizer, batch):
"""


def torch_clip(d, probability=0.5):
    if not d.chance(probability):
        return ""
    clip = d.choose(TORCH_CLIPS[:1] * 3 + TORCH_CLIPS)
    d.count("clip." + clip[9:24])
    return f"    {clip.format(c=d.choose(['0.01', '0.3', '5.0']))}\n"


TORCH_RETURN = "    optimizer.step()\n    return loss.detach(), metrics\n"
TORCH_PLAIN = """    optimizer.zero_grad()
    loss, metrics, _ = forward(model.weights(), batch)
    loss.backward()
"""


def torch_plain(d):
    return torch_optimizer(d) + TORCH_PLAIN + torch_clip(d) + TORCH_RETURN


def torch_returned(d):
    lines = []
    for name in d.weights:
        if d.chance(0.6):
            text = d.choose(["norm(g)", "total(absolute(g))", "largest(absolute(g).reshape(-1), 0)"])
            lines.append(f"    g = model.{name}.grad\n    if g is not None:\n        metrics['g_{name}'] = {text}\n")
    return torch_optimizer(d) + TORCH_PLAIN + "".join(lines) + torch_clip(d) + TORCH_RETURN


def torch_clipped(d):
    """A norm of all gradients, as clip_grad_norm_ returns it or by hand."""
    limit = d.choose(["0.01", "0.3", "5.0"])
    text = d.choose([
        f"    metrics['norm'] = nn.utils.clip_grad_norm_(model.parameters(), {limit})\n",
        f"""    kept = [p.grad for p in model.parameters() if p.grad is not None]
    n = torch.sqrt(squares(kept))
    for g in kept:
        g.mul_(torch.clamp({limit} / (n + 1e-6), max=1.0))
    metrics['norm'] = n
"""])
    return torch_optimizer(d) + TORCH_PLAIN + text + TORCH_RETURN


def torch_copies(d):
    """An average of the weights, made in the step."""
    text = d.choose(["average.lerp_(p, 0.1)", "average.mul_(0.9).add_(p, alpha=0.1)", "average.copy_(p)"])
    return torch_optimizer(d, True) + TORCH_PLAIN + torch_clip(d) + f"""    optimizer.step()
    with torch.no_grad():
        for name, p in model.named_parameters():
            average = getattr(model, "average_" + name)
            {text}
    return loss.detach(), metrics
"""


def torch_penalty(d):
    """The loss and the norm of its gradient."""
    size = d.choose(["torch.sqrt(squares(h) + 1e-3)", "squares(h)"])
    return torch_optimizer(d) + f"""    optimizer.zero_grad()
    loss, metrics, _ = forward(model.weights(), batch)
    h = torch.autograd.grad(loss, list(model.parameters()), create_graph=True, allow_unused=True)
    h = [g for g in h if g is not None]
    size = {size}
    metrics["size"] = size.detach()
    loss = loss + 0.1 * size
    loss.backward()
""" + torch_clip(d, 0.3) + TORCH_RETURN


def torch_inner(d):
    """The loss after a step on a loss of the batch."""
    return torch_optimizer(d) + f"""    optimizer.zero_grad()
    p = dict(model.named_parameters())
    first, _, second = forward(model.masked(p), batch)
    h = torch.autograd.grad({d.choose(["first", "second"])}, list(p.values()), create_graph={d.choose([True, False])},
                            allow_unused=True)
    q = {{n: a if g is None else a - 0.3 * g for (n, a), g in zip(p.items(), h)}}
    loss, metrics, _ = forward(model.masked(q), batch)
    loss.backward()
""" + torch_clip(d, 0.3) + TORCH_RETURN


def torch_balanced(d):
    """Two losses, weighted by the norms of their gradients."""
    name = d.choose(list(d.weights))
    return torch_optimizer(d) + f"""    optimizer.zero_grad()
    loss, metrics, second = forward(model.weights(), batch)
    sizes = []
    for part in (loss, second):
        (h,) = torch.autograd.grad(part, [model.{name}], retain_graph=True, allow_unused=True)
        sizes.append(norm(h) if h is not None else loss.detach())
    metrics["a"], metrics["b"] = sizes
    loss = loss + second * (sizes[0] / (sizes[0] + sizes[1] + 0.01))
    loss.backward()
""" + torch_clip(d, 0.3) + TORCH_RETURN


STEPS_OF = {
    "jax": {"plain": jax_plain, "returned": jax_returned, "clipped": jax_clipped, "copies": jax_copies, "penalty": jax_penalty,
            "inner": jax_inner, "balanced": jax_balanced, "per_example": jax_per_example},
    "torch": {"plain": torch_plain, "returned": torch_returned, "clipped": torch_clipped, "copies": torch_copies,
              "penalty": torch_penalty, "inner": torch_inner, "balanced": torch_balanced},
}
