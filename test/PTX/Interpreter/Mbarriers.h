// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef PTX_MBARRIERS_H
#define PTX_MBARRIERS_H

#include "Machine.h"

namespace ptx {

/// Begins the next phase where this one has everything that it waits for.
void completePhase(Cluster &cluster, Mbarrier &barrier);

} // namespace ptx

#endif // PTX_MBARRIERS_H
