# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Kernels of layers run on the threads that PyTorch computes on, not on others beside them.

# RUN: rm -rf %t && env SPARSE_OPT_CACHE=%t/cache %python -u %s 2>&1 | FileCheck %s

import ctypes
import os
import threading

import torch
from sparse_opt import _products, _tools
from sparse_opt.torch import _linear, nn

torch.manual_seed(0)
torch.set_num_threads(4)


def tasks():
    return len(os.listdir("/proc/self/task"))


def results(layer, x):
    x = x.detach().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    y.square().mean().backward()
    return y.detach(), x.grad, layer.weight.grad, layer.bias.grad


# Odd numbers of block rows, so that threads have shares of different sizes, and fewer rows than threads.
layers = [nn.Linear(16 * cols, 16 * rows, density=0.5) for cols, rows in [(40, 27), (3, 50), (50, 3), (1, 1)]]
inputs = [torch.randn(300, layer.in_features) for layer in layers]
torch.set_num_threads(1)
alone = [results(layer, x) for layer, x in zip(layers, inputs)]
torch.set_num_threads(4)
torch.randn(400, 400) @ torch.randn(400, 400)
(torch.randn(1 << 20) + 1).sum().item()
results(torch.nn.Linear(640, 432), inputs[0])  # the thread of backward passes
before = tasks()
for _ in range(3):
    for layer, x, want in zip(layers, inputs, alone):
        # Sums over tokens are split in no way that threads change.
        assert all(torch.equal(got, right) for got, right in zip(results(layer, x), want))
print("threads more:", tasks() - before)  # CHECK: threads more: 0

# Of the runtime of LLVM they are three more, whose results are the same.
threads_of_pytorch = _linear.threads
assert threads_of_pytorch().library and threads_of_pytorch().count == 4
_linear.threads = lambda: _products.Threads(4)
assert all(torch.equal(got, right) for got, right in zip(results(layers[0], inputs[0]), alone[0]))
print("others more:", tasks() - before >= 3)  # CHECK: others more: True
_linear.threads = threads_of_pytorch

# Threads of the caller that call at once, each with a number of its own.
failed = []


def call(count):
    torch.set_num_threads(count)
    for _ in range(20):
        for layer, x, want in zip(layers, inputs, alone):
            with torch.no_grad():
                failed.extend([count] * (not torch.equal(layer(x), want[0])))


threads = [threading.Thread(target=call, args=(count,)) for count in (1, 2, 3, 4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("failed:", failed)  # CHECK: failed: []

# The first calls of kernels, at once.
fresh = nn.Linear(96, 80, density=0.5)
wants = {tokens: torch.nn.functional.linear(torch.ones(tokens, 96), fresh.dense_weight(), fresh.bias) for tokens in (1, 70, 300)}
start = threading.Barrier(6)


def call_first(tokens):
    start.wait()
    with torch.no_grad():
        failed.extend([tokens] * (not torch.allclose(fresh(torch.ones(tokens, 96)), wants[tokens], atol=1e-5)))


threads = [threading.Thread(target=call_first, args=(tokens,)) for tokens in (1, 70, 300, 1, 70, 300)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("first failed:", failed)  # CHECK: first failed: []

# A process that was forked has no threads but its own.
torch.set_num_threads(4)
child = os.fork()
if child == 0:
    torch.set_num_threads(1)
    with torch.no_grad():
        os._exit(0 if torch.equal(layers[0](inputs[0]), alone[0][0]) else 1)
print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))  # CHECK: child: 0

# Without an OpenMP runtime of the caller kernels run on LLVM's, and linked with this library on one thread.
assert _products.callers_threads("/nonexistent.so") == ""
library = ctypes.CDLL(_tools.find_library(_tools.THREADS))
print("found:", library.bsr_threads_use(ctypes.c_void_p(ctypes.CDLL("libm.so.6")._handle)))  # CHECK: found: 0
assert torch.equal(results(layers[0], inputs[0])[0], alone[0][0])
