# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of one instruction that are the same program, and their neighbours that are not.

    equivalence.py <source root>
"""

import sys

sys.path.insert(0, f"{sys.argv[1]}/scripts")
from ptx_equivalence import Kernel  # noqa: E402: found by the line above

KERNEL = """.visible .entry k(.param .u64 out, .param .u32 size)
.maxntid 64, 1, 1
{
	ld.param.b64 	%rd1, [out];
	ld.param.b32 	%r9, [size];
	mov.u32 	%r1, %tid.x;
	shl.b32 	%r2, %r1, 3;
	and.b32 	%r3, %r2, 56;
	or.b32 	%r4, %r3, 512;
	setp.ge.s32 	%p1, %r4, %r9;
	mov.b32 	%r5, 0;
	@%p1 bra 	$L1;
	mov.b32 	%r5, 0;
	mov.b32 	%r6, %r5;
	bra.uni 	$L2;
$L1:
	mov.b32 	%r6, 0;
	mov.b32 	%r5, 1;
$L2:
	mov.b32 	%r6, 0;
	mov.b32 	%r5, 0;
	add.s32 	%r7, %r3, 1024;
	shr.u32 	%r8, %r7, 3;
	bfe.u32 	%r10, %r1, 2, 4;
	add.s32 	%r11, %r8, %r10;
	add.s32 	%r12, %r11, %r5;
	add.s32 	%r13, %r12, %r6;
	bar.sync 	0;
	mul.wide.u32 	%rd2, %r13, 4;
	add.s64 	%rd3, %rd1, %rd2;
	st.global.b32 	[%rd3], %r4;
	ret;
}"""
# An instruction, what stands in its place, and whether that is the same program where `size` is a multiple of 8, and of nothing.
CHANGES = [
    ("and.b32 %r3, %r2, 56", "and.b32 %r3, %r2, 57", True, True),  # never set
    ("and.b32 %r3, %r2, 56", "and.b32 %r3, %r2, 60", True, True),
    ("and.b32 %r3, %r2, 56", "and.b32 %r3, %r2, 120", False, False),
    ("and.b32 %r3, %r2, 56", "and.b32 %r3, %r2, 1080", True, True),  # 64 threads
    ("add.s32 %r7, %r3, 1024", "add.s32 %r7, %r3, 1031", True, True),  # shifted out
    ("add.s32 %r7, %r3, 1024", "add.s32 %r7, %r3, 1032", False, False),
    ("bfe.u32 %r10, %r1, 2, 4", "bfe.u32 %r10, %r1, 2, 5", True, True),
    ("bfe.u32 %r10, %r1, 2, 4", "bfe.u32 %r10, %r1, 2, 3", False, False),
    ("or.b32 %r4, %r3, 512", "or.b32 %r4, %r3, 513", False, False),  # stored
    ("shl.b32 %r2, %r1, 3", "shl.b32 %r2, %r1, 4", False, False),
    ("bar.sync 0", "bar.sync 1", True, True),
    ("mov.b32 %r6, 0", "", [False, True], [False, True]),  # one on one way; on both ways it has that already
    ("mov.b32 %r5, 0", "", [False, True, False], [False, True, False]),
    ("setp.ge.s32 %p1, %r4, %r9", "setp.gt.s32 %p1, %r4, %r9", False, False),
]
# Copies of a block that may be absent, and comparisons with numbers that a register may have or not.
COPIES = """.visible .entry k(.param .u64 out)
.maxntid 64, 1, 1
{
	.shared .align 16 .b8 stage[1024];
	ld.param.b64 	%rd1, [out];
	mov.u32 	%r1, %tid.x;
	ld.global.b32 	%r2, [%rd1];
	setp.gt.s32 	%p1, %r2, -1;
	selp.b32 	%r3, %r2, 0, %p1;
	selp.b32 	%r4, 8, 0, %p1;
	mul.wide.u32 	%rd2, %r3, 64;
	add.s64 	%rd3, %rd1, %rd2;
	cp.async.ca.shared.global 	[stage], [%rd3], 8, %r4;
	setp.gt.s32 	%p2, %r1, 5;
	selp.b32 	%r5, %r2, 0, %p2;
	mul.wide.u32 	%rd4, %r5, 64;
	add.s64 	%rd5, %rd1, %rd4;
	cp.async.ca.shared.global 	[stage+8], [%rd5], 8, %r4;
	selp.b32 	%r6, %r1, 0, %p1;
	mul.wide.u32 	%rd6, %r6, 64;
	add.s64 	%rd7, %rd1, %rd6;
	cp.async.ca.shared.global 	[stage+16], [%rd7], 8, %r4;
	st.global.b32 	[%rd1+4], %r6;
	selp.b32 	%r9, %r2, 0, %p1;
	mul.wide.u32 	%rd8, %r9, 64;
	add.s64 	%rd9, %rd1, %rd8;
	cp.async.ca.shared.global 	[stage+24], [%rd9], 8, %r10;
	selp.b32 	%r10, 8, 0, %p1;
	{
	.reg .pred p;
	setp.ne.b32 	p, 1, 0;
	wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, %rd20, %rd21, p, 1, 1, 0, 0;
	}
	shl.b32 	%r7, %r1, 3;
	or.b32 	%r8, %r7, 4;
	setp.gt.u32 	%p3, %r8, 65;
	setp.lt.u32 	%p4, %r8, 12;
	@%p3 bra 	$L1;
	@%p4 bra 	$L1;
	st.global.b32 	[%rd1+8], %r8;
$L1:
	ret;
}"""
CHANGED_COPIES = [
    ("setp.ne.b32 p, 1, 0", "", False),  # read under a name without a percent sign
    ("selp.b32 %r3, %r2, 0, %p1", "selp.b32 %r3, %r2, 1, %p1", True),
    ("selp.b32 %r3, %r2, 0, %p1", "selp.b32 %r3, %r2, 0, %p2", False),
    ("selp.b32 %r4, 8, 0, %p1", "selp.b32 %r4, 8, 1, %p1", False),
    ("selp.b32 %r5, %r2, 0, %p2", "selp.b32 %r5, %r2, 1, %p2", False),  # another predicate than that of the bytes
    ("selp.b32 %r6, %r1, 0, %p1", "selp.b32 %r6, %r1, 1, %p1", False),  # stored, too
    ("selp.b32 %r9, %r2, 0, %p1", "selp.b32 %r9, %r2, 1, %p1", False),  # bytes that were selected before
    ("setp.gt.u32 %p3, %r8, 65", "setp.ge.u32 %p3, %r8, 65", True),  # 65 lacks the bit of 4
    ("setp.gt.u32 %p3, %r8, 65", "setp.gt.u32 %p3, %r8, 66", True),
    ("setp.gt.u32 %p3, %r8, 65", "setp.lt.u32 %p3, %r8, 65", False),
    ("setp.gt.u32 %p3, %r8, 65", "setp.gt.u32 %p3, %r8, 68", False),
    ("setp.lt.u32 %p4, %r8, 12", "setp.le.u32 %p4, %r8, 12", False),
    ("setp.lt.u32 %p4, %r8, 12", "setp.lt.u32 %p4, %r8, 13", False),
]
COMPARED = ("or.b32 %r4, %r3, 512", "or.b32 %r4, %r3, 513")  # where the store is of something else


def normal(line):
    return " ".join(line.replace("\t", " ").strip().rstrip(";").split())


def reasons(text, multiples, old, new):
    lines = text.split("\n")
    kernel = Kernel(lines, multiples)
    return [kernel.reason(number, new and new + ";") is not None for number, line in enumerate(lines) if normal(line) == old]


failed = False
for old, new, *wanted in CHANGES:
    for multiples, want in zip(({"size": 8}, {}), wanted):
        want = want if isinstance(want, list) else [want]
        if (found := reasons(KERNEL, multiples, old, new)) != want:
            print(f"{old} -> {new or 'nothing'}: expected {want}, but got {found}")
            failed = True
for old, new, want in CHANGED_COPIES:
    if (found := reasons(COPIES, {}, old, new)) != [want]:
        print(f"{old} -> {new}: expected {want}, but got {found}")
        failed = True
elsewhere = KERNEL.replace("[%rd3], %r4", "[%rd3], %r1")
for multiples, want in (({"size": 8}, True), ({"size": 2}, True), ({}, False)):
    if (found := reasons(elsewhere, multiples, *COMPARED)) != [want]:
        print(f"{COMPARED[0]} -> {COMPARED[1]} with {multiples}: expected {want}, but got {found}")
        failed = True
sys.exit(failed)
