// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Streams, events, and graphs of work that a stream recorded. A stream works
// when somebody waits for it, and not before.

#include "State.h"
#include <algorithm>
#include <cstdlib>

using namespace sparse_opt::cuda;

StreamState *sparse_opt::cuda::findStream(Stream stream) {
  // The legacy stream has a name as well, CU_STREAM_LEGACY.
  if (!stream || stream == reinterpret_cast<Stream>(1))
    return &state().nullStream;
  auto found = state().streams.find(stream);
  return found == state().streams.end() ? nullptr : found->second.get();
}

void sparse_opt::cuda::enqueue(StreamState &stream, Work work) {
  if (stream.isCapturing)
    stream.captured.push_back(std::move(work));
  else
    stream.work.push_back(std::move(work));
}

Result sparse_opt::cuda::finish(StreamState &stream) {
  DriverState &now = state();
  while (!stream.work.empty() && !now.failure) {
    Work work = std::move(stream.work.front());
    stream.work.pop_front();
    try {
      work();
    } catch (const sparse_opt::Error &error) {
      report(error.sentence);
      bool isAddress =
          error.sentence.find("inside of an allocation") != std::string::npos;
      now.failure = isAddress ? IllegalAddress : LaunchFailed;
    }
  }
  return now.failure;
}

Result sparse_opt::cuda::finish() {
  finish(state().nullStream);
  for (auto &stream : state().streams)
    finish(*stream.second);
  return state().failure;
}

/// Makes an object of a driver's map and hands it out.
template <typename Handle, typename Object>
static Result make(std::map<Handle, std::unique_ptr<Object>> &all, Handle *to,
                   std::unique_ptr<Object> made) {
  if (!to)
    return InvalidValue;
  *to = made.get();
  all[*to] = std::move(made);
  return Success;
}

Result cuStreamCreate(Stream *stream, unsigned flags) {
  return inContext([&] {
    if (flags > nonBlockingStream)
      return InvalidValue;
    return make(state().streams, stream, std::make_unique<StreamState>());
  });
}

/// Runs `body` on the stream that `stream` names, called by `name`.
template <typename Body>
static Result onStream(Stream stream, Body body,
                       const char *name = __builtin_FUNCTION()) {
  return inContext(
      [&] {
        StreamState *found = findStream(stream);
        return found ? body(*found) : InvalidHandle;
      },
      name);
}

Result cuStreamDestroy_v2(Stream stream) {
  return onStream(stream, [&](StreamState &found) {
    if (!stream)
      return InvalidHandle;
    Result result = finish(found);
    state().streams.erase(stream);
    return result;
  });
}

Result cuStreamSynchronize(Stream stream) {
  return onStream(stream, [](StreamState &found) {
    return found.isCapturing ? NotSupported : finish(found);
  });
}

Result cuStreamIsCapturing(Stream stream, int *status) {
  return onStream(stream, [&](StreamState &found) {
    return status ? (*status = found.isCapturing, Success) : InvalidValue;
  });
}

Result cuStreamBeginCapture_v2(Stream stream, int mode) {
  return onStream(stream, [&](StreamState &found) {
    if (!stream || mode < 0 || mode > 2 || found.isCapturing)
      return InvalidValue;
    found.isCapturing = true;
    return Success;
  });
}

Result cuStreamEndCapture(Stream stream, Graph *graph) {
  return onStream(stream, [&](StreamState &found) {
    if (!found.isCapturing)
      return InvalidValue;
    found.isCapturing = false;
    auto made = std::make_unique<GraphState>();
    made->work = std::move(found.captured);
    found.captured.clear();
    return make(state().graphs, graph, std::move(made));
  });
}

Result cuGraphInstantiateWithFlags(GraphExec *exec, Graph graph,
                                   unsigned long long flags) {
  return inContext([&] {
    auto found = state().graphs.find(graph);
    if (found == state().graphs.end())
      return InvalidHandle;
    if (flags)
      return NotSupported;
    auto made = std::make_unique<GraphExecState>();
    made->work = found->second->work;
    return make(state().execs, exec, std::move(made));
  });
}

Result cuGraphLaunch(GraphExec exec, Stream stream) {
  return onStream(stream, [&](StreamState &found) {
    auto graph = state().execs.find(exec);
    if (graph == state().execs.end())
      return InvalidHandle;
    const char *dropped = std::getenv("FAKE_DRIVER_DROPS");
    if (++state().graphLaunches ==
        (dropped ? std::strtoull(dropped, nullptr, 10) : 0))
      return Success;
    for (const Work &work : graph->second->work)
      enqueue(found, work);
    return Success;
  });
}

Result cuGraphDestroy(Graph graph) {
  return inContext(
      [&] { return state().graphs.erase(graph) ? Success : InvalidHandle; });
}

Result cuGraphExecDestroy(GraphExec exec) {
  return inContext(
      [&] { return state().execs.erase(exec) ? Success : InvalidHandle; });
}

Result cuEventCreate(Event *event, unsigned flags) {
  return inContext([&] {
    if (flags > 2)
      return NotSupported;
    return make(state().events, event, std::make_unique<EventState>());
  });
}

/// The event that `event` names, or null.
static EventState *findEvent(Event event) {
  auto found = state().events.find(event);
  return found == state().events.end() ? nullptr : found->second.get();
}

Result cuEventDestroy_v2(Event event) {
  return inContext([&] {
    if (!findEvent(event))
      return InvalidHandle;
    finish();
    state().events.erase(event);
    return Success;
  });
}

Result cuEventRecord(Event event, Stream stream) {
  return onStream(stream, [&](StreamState &found) {
    EventState *known = findEvent(event);
    if (!known || found.isCapturing)
      return known ? NotSupported : InvalidHandle;
    known->stream = &found;
    enqueue(found, [known, number = ++known->recorded] {
      known->reached = number;
      known->time = std::chrono::steady_clock::now();
    });
    return Success;
  });
}

/// Lets the stream of `event` work until it has got to the last record.
static Result reach(EventState &event) {
  if (event.reached == event.recorded)
    return state().failure;
  return finish(*event.stream);
}

Result cuEventSynchronize(Event event) {
  return inContext([&] {
    EventState *known = findEvent(event);
    return known ? reach(*known) : InvalidHandle;
  });
}

Result cuStreamWaitEvent(Stream stream, Event event, unsigned flags) {
  return onStream(stream, [&](StreamState &found) {
    EventState *known = findEvent(event);
    if (!known || flags || found.isCapturing)
      return known ? NotSupported : InvalidHandle;
    // What is recorded now, whatever is recorded later.
    enqueue(found, [known, number = known->recorded, of = known->stream] {
      if (known->reached < number)
        finish(*of);
    });
    return Success;
  });
}

Result cuEventElapsedTime(float *milliseconds, Event begin, Event end) {
  return inContext([&] {
    EventState *first = findEvent(begin), *last = findEvent(end);
    if (!first || !last || !milliseconds)
      return InvalidHandle;
    for (EventState *event : {first, last})
      if (!event->recorded)
        return InvalidHandle;
      else if (event->reached != event->recorded)
        return NotReady;
    *milliseconds =
        std::chrono::duration<float, std::milli>(last->time - first->time)
            .count();
    return Success;
  });
}
