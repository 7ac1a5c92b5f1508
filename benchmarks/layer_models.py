#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Steps of transformers' models with block-sparse layers, beside dense ones, in PyTorch's own loop.

    PYTHONPATH=python benchmarks/layer_models.py [--model bert|gpt2]... [--tokens T] [--threads N] [--rounds N] [--density D] [--block B]
                                           [--starts N]

BERT-Base and GPT-2 (random values, T tokens in four sequences, AdamW, no dropout) take steps in turn in one process: forward, backward
and update, of which the median counts. The layers are those of attention and of the MLP, which compute
its activations; embeddings and the head stay dense. Then each takes three steps in a process of its own, whose peak memory is printed,
without that of a process that imports the same. Last is what tensors take: parameters, gradients, moments, and what the forward pass
keeps for the backward pass; it is the same on every machine, and --rounds 0 prints it alone.

With --starts N it is how long a process takes from its start to the end of its first step instead, dense and with layers whose kernels
are kept on disk, in turn, N times each.
"""

import argparse
import statistics
import subprocess
import sys
import time

import harness
import torch

MARKS = {
    "bert": r"match=encoder\.layer.*\.weight block={b}x{b} density={d}",
    "gpt2": r"match=h\.\d+\..*(c_attn|c_proj|c_fc)\.weight block={b}x{b} density={d}",
}


def make(name, mark):
    """A model and its step."""
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    if name == "bert":
        model = BertForMaskedLM(BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    else:
        model = GPT2LMHeadModel(GPT2Config(attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))
    if mark:
        from sparse_opt.torch import nn

        nn.sparsify(model, [mark], fuse_activations=True)
    model.train()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4)


def stepper(name, mark, tokens):
    model, optimizer = make(name, mark)
    ids = torch.randint(0, 30000, (4, tokens // 4))

    def step():
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def tensors(name, mark, tokens):
    """What parameters, gradients, moments and the forward pass keep, in MiB."""
    model, _ = make(name, mark)
    ids = torch.randint(0, 30000, (4, tokens // 4))
    loss = model(input_ids=ids, labels=ids).loss
    # Of the graph, where hooks would have layers keep what they give to hooks.
    kept, nodes, seen = {}, [loss.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [next for next, _ in node.next_functions]
        found = [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
        for tensor in torch.utils._pytree.tree_leaves([found, list(getattr(node, "saved_tensors", ()))]):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                kept[storage.data_ptr()] = storage.nbytes()
    for parameter in model.parameters():
        kept[parameter.untyped_storage().data_ptr()] = 4 * parameter.nbytes
    del loss
    return sum(kept.values()) >> 20


def peak(name, mark, tokens, threads, steps):
    """The most memory in MiB that a process takes."""
    done = subprocess.run([sys.executable, __file__, "--alone", name, mark, str(tokens), str(threads), str(steps)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return int(done.stdout)


def measure_starts(options):
    """Prints how long processes take that do one step."""
    print("| model | dense, s | layers, s | more, s |\n|---|---:|---:|---:|")
    for name in options.model or MARKS:
        marks = ["", MARKS[name].format(b=options.block, d=options.density)]
        times = [[], []]
        for _ in range(options.starts + 1):  # The first compiles.
            for mark, found in zip(marks, times):
                start = time.perf_counter()
                peak(name, mark, options.tokens, options.threads, 1)
                found.append(time.perf_counter() - start)
        dense, sparse = (statistics.median(found[1:]) for found in times)
        more = statistics.median(b - a for a, b in zip(times[0][1:], times[1][1:]))
        print(f"| {name} | {dense:.1f} | {sparse:.1f} | {more:.1f} |", flush=True)


def alone(name, mark, tokens, threads, steps):
    torch.set_num_threads(int(threads))
    if int(steps):
        step = stepper(name, mark, int(tokens))
        for _ in range(int(steps)):
            step()
    else:
        # A model's own modules are loaded when it is first asked for.
        from sparse_opt.torch import nn  # noqa: F401
        from transformers import BertForMaskedLM, GPT2LMHeadModel  # noqa: F401
    # ru_maxrss has that of the process that started this one.
    with open("/proc/self/status") as file:
        print(next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) >> 10)


def main():
    if sys.argv[1:2] == ["--alone"]:
        return alone(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=list(MARKS))
    for option, default in (("tokens", 512), ("threads", 2), ("rounds", 7), ("block", 16)):
        parser.add_argument(f"--{option}", type=int, default=default, metavar="N")
    parser.add_argument("--density", type=float, default=0.1)
    parser.add_argument("--starts", type=int, default=0, metavar="N")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    harness.describe_machine(options.threads)
    if options.starts:
        return measure_starts(options)
    if options.rounds:
        print("| model | dense, s | layers, s | ratio | dense, MiB | layers, MiB | ratio |\n|---|---:|---:|---:|---:|---:|---:|")
    for name in options.model or MARKS:
        mark = MARKS[name].format(b=options.block, d=options.density)
        if not options.rounds:
            continue
        steps = [stepper(name, m, options.tokens) for m in ("", mark)]
        times = [[], []]
        for _ in range(options.rounds + 1):
            for step, found in zip(steps, times):
                start = time.perf_counter()
                step()
                found.append(time.perf_counter() - start)
        dense, sparse = (statistics.median(found[1:]) for found in times)
        ratio = statistics.median(a / b for a, b in zip(times[0][1:], times[1][1:]))
        del steps
        none = peak(name, "", options.tokens, options.threads, 0)
        memory = [peak(name, m, options.tokens, options.threads, 3) - none for m in ("", mark)]
        print(f"| {name} | {dense:.3f} | {sparse:.3f} | {ratio:.2f} | {memory[0]} | {memory[1]} | {memory[1] / memory[0]:.2f} |", flush=True)
    print("\n| model | tensors, dense, MiB | layers, MiB | ratio |\n|---|---:|---:|---:|")
    for name in options.model or MARKS:
        dense, sparse = (tensors(name, m, options.tokens) for m in ("", MARKS[name].format(b=options.block, d=options.density)))
        print(f"| {name} | {dense} | {sparse} | {sparse / dense:.2f} |", flush=True)


if __name__ == "__main__":
    main()
