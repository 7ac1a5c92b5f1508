// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#ifndef PTX_MBARRIERS_H
#define PTX_MBARRIERS_H

#include "Machine.h"

namespace ptx {

/// Begins the next phase where this one has everything that it waits for.
void completePhase(Cluster &cluster, Mbarrier &barrier);

/// The warp has fenced: bulk copies may use the mbarriers that it initialised.
void publish(Warp &warp);

} // namespace ptx

#endif // PTX_MBARRIERS_H
