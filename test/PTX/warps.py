# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks what lanes say to each other, and accesses of memory, against Python.

Each case is PTX that leaves a word of each lane in %v, and what that is. The words
that lanes begin with, %a, are WORDS.
"""

import subprocess
import sys

WORDS = [(lane * 2654435761 + 12345) % (1 << 32) for lane in range(32)]
HEAD = """.version 8.3
.target sm_90a
.address_size 64
.const .align 4 .b32 table[4] = {10, 20, 30, -1};
.global .align 4 .f32 number = 1.5;
.visible .entry k(.param .u64 in, .param .u64 out) {
.reg .b32 %l; .reg .b32 %a; .reg .b32 %v; .reg .b32 %w<8>; .reg .b16 %h<4>; .reg .b64 %p<4>; .reg .pred %q<4>;
.shared .align 16 .b8 s[1024]; .local .align 16 .b8 m[32];
mov.u32 %l, %laneid; mul.wide.u32 %p3, %l, 4; ld.param.u64 %p0, [in]; ld.param.u64 %p1, [out]; add.s64 %p0, %p0, %p3; add.s64 %p1, %p1, %p3; ld.global.b32 %a, [%p0];
mov.u32 %w7, s; mad.lo.u32 %w7, %l, 16, %w7;
"""
signed = [word - (1 << 32) if word >> 31 else word for word in WORDS]
odd = sum((word & 1) << lane for lane, word in enumerate(WORDS))
total = sum(WORDS) % (1 << 32)


def shuffled(source):
    return [WORDS[source(lane)] for lane in range(32)]


every = range(32)
CASES = [
    # PTX ISA, "shfl.sync": c has the last lane, and from bit 8 on the mask of segments.
    ("shfl.sync.bfly.b32 %v, %a, 5, 31, -1;", shuffled(lambda l: l ^ 5)),
    ("shfl.sync.down.b32 %v, %a, 4, 31, -1;", shuffled(lambda l: l + 4 if l + 4 < 32 else l)),
    ("shfl.sync.up.b32 %v, %a, 4, 0, -1;", shuffled(lambda l: l - 4 if l >= 4 else l)),
    ("shfl.sync.idx.b32 %v, %a, 7, 31, -1;", shuffled(lambda l: 7)),
    ("shfl.sync.idx.b32 %v, %a, 2, 6175, -1;", shuffled(lambda l: l // 8 * 8 + 2)),
    ("shfl.sync.down.b32 %v, %a, 3, 6175, -1;", shuffled(lambda l: l + 3 if l % 8 + 3 < 8 else l)),
    ("shfl.sync.down.b32 %v|%q1, %a, 4, 31, -1; selp.b32 %v, 1, 0, %q1;", [int(l + 4 < 32) for l in every]),
    ("and.b32 %w0, %a, 1; setp.eq.u32 %q0, %w0, 1; vote.sync.ballot.b32 %v, %q0, -1;", [odd] * 32),
    ("and.b32 %w0, %a, 1; setp.eq.u32 %q0, %w0, 1; vote.sync.ballot.b32 %v, !%q0, -1;", [~odd % (1 << 32)] * 32),
    ("setp.ge.u32 %q0, %l, 0; vote.sync.all.pred %q1, %q0, -1; selp.b32 %v, 1, 0, %q1;", [1] * 32),
    ("setp.gt.u32 %q0, %l, 0; vote.sync.all.pred %q1, %q0, -1; selp.b32 %v, 1, 0, %q1;", [0] * 32),
    ("setp.gt.u32 %q0, %l, 30; vote.sync.any.pred %q1, %q0, -1; selp.b32 %v, 1, 0, %q1;", [1] * 32),
    ("setp.gt.u32 %q0, %l, 31; vote.sync.uni.pred %q1, %q0, -1; selp.b32 %v, 1, 0, %q1;", [1] * 32),
    ("shr.u32 %w0, %l, 3; match.any.sync.b32 %v, %w0, -1;", [255 << l // 8 * 8 for l in every]),
    ("match.all.sync.b32 %v|%q1, %l, -1; selp.b32 %v, 1, 2, %q1;", [2] * 32),
    ("mov.b64 %p2, 5; match.all.sync.b64 %v|%q1, %p2, -1;", [0xffffffff] * 32),
    ("redux.sync.add.u32 %v, %a, -1;", [total] * 32),
    ("redux.sync.max.u32 %v, %a, -1;", [max(WORDS)] * 32),
    ("redux.sync.min.s32 %v, %a, -1;", [min(signed) % (1 << 32)] * 32),
    ("redux.sync.xor.b32 %v, %a, -1;", [__import__("functools").reduce(lambda x, y: x ^ y, WORDS)] * 32),
    ("redux.sync.and.b32 %v, %l, -1;", [0] * 32),
    ("redux.sync.or.b32 %v, %l, -1;", [31] * 32),
    ("mov.b32 %v, 0; setp.lt.u32 %q0, %l, 5; @%q0 activemask.b32 %v;", [31 if l < 5 else 0 for l in every]),
    ("elect.sync %v|%q1, -1; selp.b32 %v, 1, 0, %q1;", [int(l == 0) for l in every]),
    ("mov.b32 %v, %lanemask_lt;", [(1 << l) - 1 for l in every]),
    ("mov.b32 %v, %lanemask_ge;", [~((1 << l) - 1) % (1 << 32) for l in every]),
    # Memory: narrow and signed loads, vectors, spaces, generic addresses.
    ("ld.global.u8 %v, [%p0+1];", [w >> 8 & 255 for w in WORDS]),
    ("ld.global.s8 %v, [%p0+3];", [((w >> 24) ^ 128) - 128 & 0xffffffff for w in WORDS]),
    ("ld.global.s16 %h0, [%p0+2]; cvt.s32.s16 %v, %h0;", [((w >> 16) ^ 32768) - 32768 & 0xffffffff for w in WORDS]),
    ("st.shared.v4.b32 [%w7], {%a, %l, %a, %l}; ld.shared.v2.b32 {%w0, %v}, [%w7+8];", list(every)),
    ("st.shared.v2.b32 [%w7], {%l, %a}; ld.shared.b64 %p2, [%w7]; mov.b64 {%w0, %v}, %p2;", WORDS),
    ("st.shared.b8 [%w7+5], %a; ld.shared.u8 %v, [%w7+5];", [w & 255 for w in WORDS]),
    ("cvt.u64.u32 %p2, %w7; cvta.shared.u64 %p2, %p2; st.b32 [%p2], %a; ld.shared.b32 %v, [%w7];", WORDS),
    ("st.local.v2.b32 [m+8], {%l, %a}; ld.local.b32 %v, [m+12];", WORDS),
    ("mov.b64 %p2, m; cvta.local.u64 %p2, %p2; st.b32 [%p2+4], %a; isspacep.local %q1, %p2; ld.local.b32 %v, [m+4]; @!%q1 trap;", WORDS),
    ("ld.const.b32 %v, [table+12];", [0xffffffff] * 32),
    ("mov.b64 %p2, number; ld.global.b32 %v, [%p2];", [0x3fc00000] * 32),
    ("mov.b64 %p2, out; cvta.param.u64 %p2, %p2; ld.u64 %p2, [%p2]; sub.s64 %p2, %p2, %p1; cvt.u32.u64 %v, %p2;", [-4 * l % (1 << 32) for l in every]),
    ("mov.b32 {%h0, %h1}, %a; mov.b32 %v, {%h1, %h0};", [w >> 16 | (w & 65535) << 16 for w in WORDS]),
    ("mov.b64 %p2, {%a, %l}; shr.u64 %p2, %p2, 32; cvt.u32.u64 %v, %p2;", list(every)),
    # Atomic operations, lane by lane.
    ("setp.eq.u32 %q0, %l, 0; @%q0 st.shared.b32 [s], 0; bar.warp.sync -1; atom.shared.add.u32 %v, [s], 2;", [2 * l for l in every]),
    ("setp.eq.u32 %q0, %l, 0; @%q0 st.shared.b32 [s], 5; bar.warp.sync -1; atom.shared.max.s32 %v, [s], %l;", [max(5, l - 1) for l in every]),
    ("setp.eq.u32 %q0, %l, 0; @%q0 st.shared.b32 [s], 99; bar.warp.sync -1; atom.shared.exch.b32 %v, [s], %l;", [99] + list(range(31))),
    ("setp.eq.u32 %q0, %l, 0; @%q0 st.shared.b32 [s], 3; bar.warp.sync -1; add.s32 %w0, %l, 1; atom.shared.cas.b32 %v, [s], %l, %w0;", [3] * 4 + list(range(4, 32))),
    ("setp.eq.u32 %q0, %l, 0; @%q0 st.shared.b32 [s], 0; bar.warp.sync -1; atom.shared.inc.u32 %v, [s], 3;", [l % 4 for l in every]),
    ("setp.eq.u32 %q0, %l, 0; @%q0 st.shared.b32 [s], 0; bar.warp.sync -1; atom.shared.dec.u32 %v, [s], 3;", [-l % 4 for l in every]),
    ("atom.global.min.u32 %v, [%p0], 7;", WORDS),
    ("atom.global.or.b32 %v, [%p0], 1; ld.global.b32 %v, [%p0];", [w | 1 for w in WORDS]),
    ("mov.b32 %w0, 0f3F800000; mov.b32 %v, 0; st.global.b32 [%p1], %v; red.global.add.f32 [%p1], %w0; ld.global.b32 %v, [%p1];", [0x3f800000] * 32),
    # Carries, divergence, and what has no effect.
    ("add.cc.u32 %w0, %a, %a; addc.u32 %v, 0, 0;", [2 * w >> 32 for w in WORDS]),
    ("sub.cc.u32 %w0, %l, 5; subc.u32 %v, 0, 0;", [0xffffffff if l < 5 else 0 for l in every]),
    ("mov.b32 %v, 0; again: add.s32 %v, %v, 3; setp.lt.u32 %q0, %v, %l; @%q0 bra again;", [max(3, -(-l // 3) * 3) for l in every]),
    ("setp.lt.u32 %q0, %l, 9; @%q0 bra low; mov.b32 %v, 2; bra.uni met; low: mov.b32 %v, 1; met: prefetch.global.L2 [%p0];", [1 if l < 9 else 2 for l in every]),
    ("mov.b32 %v, 0; and.b32 %w0, %l, 3; list: .branchtargets zero, one, zero, three; brx.idx %w0, list; zero: add.s32 %v, %v, 5; one: add.s32 %v, %v, 7; three: shfl.sync.bfly.b32 %v, %v, 1, 31, -1;",
     [(12, 7, 12, 0)[(l ^ 1) % 4] for l in every]),
    ("griddepcontrol.wait; griddepcontrol.launch_dependents; fence.acq_rel.gpu; membar.cta; nanosleep.u32 10; mov.u32 %v, %nsmid;", [1] * 32),
]
wrong = 0
for code, wanted in CASES:
    with open("case.ptx", "w") as file:
        file.write(f"{HEAD}{code}\nst.global.b32 [%p1], %v;\n}}\n")
    done = subprocess.run(["ptx-run", "case.ptx", "--grid", "1", "--block", "32", "--arg", "in:u32:" + ",".join(map(str, WORDS)),
                           "--arg", "out:u32:32"], capture_output=True, text=True)
    found = [int(word) for word in done.stdout.split()[2:]]
    if done.returncode or found != list(wanted):
        wrong += 1
        print(f"{code}: expected {list(wanted)}, but got {done.stderr or found}")
print(f"{len(CASES)} cases, {wrong} wrong")
sys.exit(bool(wrong))
