// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Remembers a signal for the end of the step.

#include "StopSignal.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

using namespace sparse_opt;

/// The first signal, and when it came, in nanoseconds.
static std::atomic<int> received;
static std::atomic<int64_t> since;
static_assert(std::atomic<int64_t>::is_always_lock_free);

static int64_t now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * int64_t(1000000000) + time.tv_nsec;
}

/// Calls only what a handler may call.
static void onStop(int signal) {
  constexpr int64_t second = 1000000000;
  int64_t none = 0;
  if (since.compare_exchange_strong(none, now())) {
    received = signal;
    return;
  }
  if (now() - since < second)
    return;
  std::signal(signal, SIG_DFL);
  raise(signal); // when this returns
}

/// The signals.
static constexpr int stopSignals[] = {SIGTERM, SIGINT, SIGHUP};

void train::rememberStopSignals() {
  for (int signal : stopSignals) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) || action.sa_handler == SIG_IGN)
      continue;
    action = {};
    action.sa_handler = onStop;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
}

void train::forgetStopSignals() {
  for (int signal : stopSignals) {
    struct sigaction action = {};
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == onStop)
      std::signal(signal, SIG_DFL);
  }
}

int train::stopSignal() { return received; }

const char *train::nameOfStopSignal(int signal) {
  return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGHUP";
}
