# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Options by names that there are not are refused, with the name that is meant.

# RUN: %numpy_python -u %s | FileCheck %s --implicit-check-not=accepted

import sparse_opt
from refusals import refuse
from text_step import TEXT

# CHECK: expected an option of Mark, but got 'densty': the nearest is 'density'
refuse(sparse_opt.Mark, "w", densty=0.1)
# CHECK-NEXT: expected an option of compile, but got 'optoins': the nearest is 'options'
refuse(sparse_opt.compile, TEXT, "match=w$", optoins=[])
# CHECK-NEXT: expected an option of compile, but got 'xyz': there are export, marks, device,
refuse(sparse_opt.compile, TEXT, "match=w$", xyz=[])
# CHECK-NEXT: expected an option of Group, but got 'evry': the nearest is 'every'
refuse(sparse_opt.Group, evry=5)
step = sparse_opt.compile(TEXT, "match=w$", options=["-O", "0"], pattern="random")
# CHECK-NEXT: expected an option of Sparsity, but got 'step_s': the nearest is 'steps'
refuse(sparse_opt.Sparsity, step, [], step_s=5)
# CHECK-NEXT: expected an option of Step.update_patterns, but got 'norms': the nearest is 'norm'
refuse(step.update_patterns, norms="l1")
# CHECK-NEXT: expected an option of Step.bind, but got 'lib': the nearest is 'library'
refuse(step.bind, TEXT, lib="f.so")
# CHECK-NEXT: expected an option of explain, but got 'mark': the nearest is 'marks'
refuse(sparse_opt.explain, TEXT, mark="w")

# CHECK-NEXT: expected an option of sparse-compile, but got '--score-nrm=l1': the nearest is '--score-norm=l1'
refuse(sparse_opt.compile, TEXT, options=["--score-nrm=l1"])
# CHECK-NEXT: expected a list of options of sparse-compile, but got '--timers'
refuse(sparse_opt.compile, TEXT, options="--timers")
# CHECK-NEXT: expected a list of options of sparse-compile, but got '--timers'
refuse(sparse_opt.explain, TEXT, options="--timers")
