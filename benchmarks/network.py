#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains with processes that are machines to each other (docs/parallel.md): each is in a network namespace
# of its own, and what they send goes through links of a given bandwidth and latency, which this program
# is the other end of: a TAP device each, so that no module of the kernel is needed but that. Each
# process has the same batch, however many there are. Prints what was measured beside
# the prediction of sparse-partition. Needs root, iproute2 and Open MPI, and ends what it made.

import argparse
import fcntl
import heapq
import json
import os
import re
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
MTU = 9000
LATE = 0.002  # seconds that a link catches up with, when this program was late


class Network:
    """`count` namespaces, the addresses 10.77.0.1 and on, and the links between them."""

    def __init__(self, count, bandwidth, latency):
        self.bandwidth, self.latency = bandwidth, latency
        self.names = [f"bsr{os.getpid()}-{rank}" for rank in range(count)]
        self.taps = []
        for rank, name in enumerate(self.names):
            ip("netns", "add", name)
            tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            device = f"tap{rank}"
            fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", device.encode(), IFF_TAP | IFF_NO_PI))
            self.taps.append(tap)
            ip("link", "set", device, "netns", name)
            inside = ["-n", name]
            ip(*inside, "link", "set", device, "address", f"02:00:00:00:00:{rank:02x}", "mtu", str(MTU), "up")
            ip(*inside, "link", "set", "lo", "up")
            ip(*inside, "address", "add", f"10.77.0.{rank + 1}/24", "dev", device)
        self.isOver = False
        self.thread = threading.Thread(target=self.forward, daemon=True)
        self.thread.start()

    def forward(self):
        """Takes frames, and gives each on when it has gone through the link of its sender."""
        try:
            # A link does not wait for a processor, as long as this may say so.
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except PermissionError:
            print("the links' thread has no real-time priority", file=sys.stderr)
        free = [0.0] * len(self.taps)  # when a link has sent what it has
        waiting, number = [], 0
        while not self.isOver:
            # What a link has no time for yet, its sender keeps: it knows how much it may have on the way.
            now = time.monotonic()
            idle = [tap for tap, at in zip(self.taps, free) if at <= now]
            later = [at for at in free if at > now] + [waiting[0][0] if waiting else now + 0.1]
            for tap in select.select(idle, [], [], max(min(later) - now, 0))[0]:
                frame, now, source = os.read(tap, MTU + 64), time.monotonic(), self.taps.index(tap)
                free[source] = max(free[source], now - LATE) + len(frame) / self.bandwidth
                # The last byte of an address is the rank; others are for all.
                to = [frame[5]] if frame[0] == 2 else [r for r in range(len(free)) if r != source]
                for rank in to:
                    number += 1
                    heapq.heappush(waiting, (free[source] + self.latency, number, rank, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                _, _, rank, frame = heapq.heappop(waiting)
                if rank < len(self.taps):
                    os.write(self.taps[rank], frame)

    def close(self):
        self.isOver = True
        self.thread.join()
        for tap in self.taps:
            os.close(tap)
        for name in self.names:
            ip("netns", "delete", name)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def quantity(text, units):
    number, unit = re.fullmatch(r"([0-9.]+)(\D*)", text).groups()
    return float(number) * units[unit]


parser = argparse.ArgumentParser()
parser.add_argument("--step", type=Path, required=True, help="as text")
parser.add_argument("--tokens", type=Path, required=True)
parser.add_argument("--mark", default="match=layers.*_w$ block=16x16 density=0.25")
parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
parser.add_argument("--samples", type=int, default=4, help="of a batch of the step")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--bandwidth", default="12.5MB/s")
parser.add_argument("--latency", default="1ms")
args = parser.parse_args()
root = Path(__file__).resolve().parent.parent
bandwidth = quantity(args.bandwidth, {"KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9})
latency = quantity(args.latency, {"us": 1e-6, "ms": 1e-3, "s": 1})


def train(folder, count):
    """The summary of a run of `count` processes."""
    run = folder / f"run-{count}"
    settings = {"step": args.step, "tokens": args.tokens, "run": run, "compile.cache": folder / "cache", "steps": args.steps,
                "accumulate": count, "sparsity.every": 0, "checkpoint.every": 0,
                "held_out.batches": count, "held_out.every": 0, "compile.options": json.dumps([f"--mark={args.mark}"])}
    words = ["sparse-train", "--config", root / "examples/bert.yaml",
             *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]
    network = Network(count, bandwidth, latency)
    try:
        # A machine is what has a name of its own; mpirun is on the first.
        agent = folder / "agent"
        agent.write_text('#!/bin/sh\nname=$1; shift\n'
                         f'exec ip netns exec {network.names[0][:-1]}${{name#m}} unshare --uts sh -c "hostname $name; $*"\n')
        agent.chmod(0o755)
        hosts = ",".join(f"m{rank}" for rank in range(count))
        # Namespaces take root, which Open MPI refuses to run as unless it is told to.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        # Without the flags a long message waits for the one that comes from where it goes to.
        options = {"plm_rsh_agent": agent, "btl": "tcp,self", "btl_tcp_flags": "1", "btl_tcp_if_include": "10.77.0.0/24",
                   "oob_tcp_if_include": "10.77.0.0/24", "orte_keep_fqdn_hostnames": "0", "plm_rsh_no_tree_spawn": "1"}
        exported = [name for name in ("PATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS") if name in environment]
        command = ["mpirun", "--host", hosts, "--map-by", "node", "-n", str(count), *(w for name in exported for w in ("-x", name)),
                   *(str(word) for key, value in options.items() for word in ("--mca", key, value)), *map(str, words)]
        subprocess.run(["ip", "netns", "exec", network.names[0], "unshare", "--uts", "sh", "-c",
                        'hostname m0; exec "$@"', "sh", *command], check=True, env=environment, stdout=subprocess.DEVNULL)
    finally:
        network.close()
    return json.loads((run / "summary.json").read_text())


def plan(count, flops):
    """What sparse-partition predicts of `count` devices, which have each batch's samples in equal shares: seconds, bytes that each
    reduces. Processes that share the cores of this machine are devices of as much less speed."""
    flops *= min(1, os.cpu_count() / count)
    keys = f"devices={count} memory=64GiB flops={flops / 1e9:.6f}GFLOP/s bandwidth={bandwidth / 1e6:.6f}MB/s latency={latency * 1e6:.0f}us " \
           f"batch={count * args.samples} stages=1 replicas={count} micro-batches=1"
    text = subprocess.run(["sparse-partition", args.step, f"--mark={args.mark}", f"--plan-for={keys}"], check=True,
                          capture_output=True, text=True).stdout
    time = float(re.search(r"predicted: ([0-9.]+) ms", text)[1]) * 1e-3
    number, unit = re.search(r"([0-9.]+) (\S+) reduced by all", text).groups()
    return time, float(number) * {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit] / count


print(f"{args.bandwidth} and {args.latency} each link, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}")
print("processes  step s  predicted s  reduced MB  predicted MB  reductions s  predicted s  hidden")
with tempfile.TemporaryDirectory() as name:
    flops = None
    for count in args.processes:
        summary = train(Path(name), count)
        step = summary["median_step_time"]
        if flops is None:  # of the first run all is measured
            flops = 1e9 * plan(1, 1e9)[0] / step
        predicted, reduced = plan(count, flops)
        runs = args.steps + 2  # a held-out batch of each process at the beginning and at the end, as long
        print(f"{count:9} {step:7.2f} {predicted:12.2f} {summary['bytes_sent'] / runs / 1e6:11.2f} "
              f"{reduced / 1e6:13.2f} {summary['reduction_time'] / runs:13.2f} {reduced / bandwidth:12.2f} "
              f"{summary['reduction_hidden'] * 100 if count > 1 else 100:6.1f} %", flush=True)
