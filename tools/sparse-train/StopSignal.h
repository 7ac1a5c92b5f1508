// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Signals that ask a run to end.

#ifndef BSR_TOOLS_SPARSETRAIN_STOPSIGNAL_H
#define BSR_TOOLS_SPARSETRAIN_STOPSIGNAL_H

namespace sparse_opt::train {

/// From now on a first SIGTERM, SIGINT or SIGHUP is remembered instead of
/// ending the program, and a second one ends it: one that comes more than a
/// second later, since what starts the processes of a job may deliver a signal
/// to each and hand it on. A signal that the program was started to ignore, as
/// by nohup, stays ignored.
void rememberStopSignals();

/// From now on these signals end the program as ever.
void forgetStopSignals();

/// The signal that came, or 0.
int stopSignal();

/// What one of them is called.
const char *nameOfStopSignal(int signal);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_STOPSIGNAL_H
