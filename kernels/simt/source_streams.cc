#include "kernels/simt/source_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kernels/simt/source_memory.h"
#include "kernels/simt/source_state.h"
#include "kernels/simt/source_threads.h"

namespace verbatim::simt {
namespace {

using cuda_source::StreamKind;

// Of the call, by their numbers from 1.
class Launches {
public:
    void add(uint32_t launch) {
        if (launches_.size() <= launch) launches_.resize(launch + 1);
        launches_[launch] = true;
    }
    void join(const Launches& other) {
        if (launches_.size() < other.launches_.size()) launches_.resize(other.launches_.size());
        for (size_t i = 0; i < other.launches_.size(); ++i) launches_[i] = launches_[i] || other.launches_[i];
    }
    // Those below `end` that are not there.
    [[nodiscard]] std::vector<uint32_t> missing(uint32_t end) const {
        std::vector<uint32_t> all;
        for (uint32_t i = 1; i < end; ++i) {
            if (i >= launches_.size() || !launches_[i]) all.push_back(i);
        }
        return all;
    }

private:
    std::vector<bool> launches_;
};

struct Stream {
    StreamKind kind = StreamKind::kBlocking;
    bool is_destroyed = false;
    Launches done;  // before its next launch
};
struct Event {
    bool is_destroyed = false;
    Launches done;
};

// Streams and events live as long as the process, as those of a library that makes them once.
struct Streams {
    std::deque<Stream> streams = std::deque<Stream>(1);  // the first is the thread's
    std::deque<Event> events;
    // Of the call.
    Stream of_call;
    Launches of_host, without_stream;
    bool uses_stream_of_call = false;
    std::vector<std::string> names{""};  // of launches
};
Streams& streams() {
    static Streams all;
    return all;
}

// Null: the call's stream, or none.
Stream* created(const void* stream) {
    const auto found = std::ranges::find_if(streams().streams, [&](const Stream& one) { return &one == stream; });
    return found == streams().streams.end() ? nullptr : &*found;
}
Event* event_of(const void* event, const char* what) {
    for (Event& one : streams().events) {
        if (&one == event && !one.is_destroyed) return &one;
    }
    if (source.emulator != nullptr)
        source.emulator->found_on_host(fmt::format("{} of no event, or of one that is destroyed", what),
                                       FindingKind::kLaunchLimit);
    return nullptr;
}
bool is_alive(const void* stream, const char* what) {
    const Stream* const one = created(stream);
    if (one == nullptr || !one->is_destroyed) return true;
    if (source.emulator != nullptr)
        source.emulator->found_on_host(fmt::format("{} in a stream that is destroyed", what),
                                       FindingKind::kLaunchLimit);
    return false;
}
Stream& stream_of(const void* stream) {
    Stream* const one = created(stream);
    streams().uses_stream_of_call |= one == nullptr && stream != nullptr;
    return one != nullptr ? *one : streams().of_call;
}

// Of cudaMalloc and cudaFree.
const void* stream_of_memory() {
    static const void* const stream = cuda_source::create_stream(StreamKind::kNonBlocking);
    return stream;
}

// What the stream's next launch comes behind.
Launches before_next(const void* stream) {
    const Stream& one = stream_of(stream);
    Launches before = one.done;
    before.join(streams().of_host);
    if (stream == nullptr) {
        for (const Stream& other : streams().streams) {
            if (other.kind == StreamKind::kBlocking) before.join(other.done);
        }
    } else if (created(stream) != nullptr && one.kind == StreamKind::kBlocking) {
        before.join(streams().without_stream);
    }
    return before;
}

}  // namespace

void begin_streams() {
    Streams& all = streams();
    for (Stream& one : all.streams) one.done = {};
    for (Event& one : all.events) one.done = {};
    all.of_call = {};
    all.of_host = all.without_stream = {};
    all.uses_stream_of_call = false;
    all.names.resize(1);
}

std::vector<uint32_t> launch_in_stream(const void* stream, uint32_t number, const char* name) {
    CHECK_GE(number, 1U);
    (void)is_alive(stream, name);
    Launches before = before_next(stream);
    std::vector<uint32_t> unordered = before.missing(number);
    before.add(number);
    if (stream == nullptr) streams().without_stream = before;
    stream_of(stream).done = std::move(before);
    streams().names.resize(number);
    streams().names.emplace_back(name);
    return unordered;
}

void end_streams() {
    const void* const of_call = streams().uses_stream_of_call ? &streams().of_call : nullptr;
    const auto end = static_cast<uint32_t>(streams().names.size());
    const std::vector<uint32_t> open = before_next(of_call).missing(end);
    if (open.empty()) return;
    source.emulator->found_on_host(
        fmt::format("{}: run() ends, and this launch of another stream may still run: no event brings it before the "
                    "call's stream, and no synchronisation before the host",
                    streams().names[open.front()]),
        FindingKind::kNotAwaited);
}

}  // namespace verbatim::simt

namespace verbatim::cuda_source {

using simt::source;
using simt::streams;

void* create_stream(StreamKind kind) {
    streams().streams.push_back({kind, false, {}});
    return &streams().streams.back();
}
void* create_event() { return &streams().events.emplace_back(); }
void* stream_of_thread() { return &streams().streams.front(); }

bool destroy_stream(const void* stream) {
    simt::Stream* const one = simt::created(stream);
    if (one == nullptr || !simt::is_alive(stream, "cudaStreamDestroy")) return false;
    one->is_destroyed = true;  // its launches go on
    return true;
}
bool destroy_event(const void* event) {
    simt::Event* const one = simt::event_of(event, "cudaEventDestroy");
    if (one != nullptr) one->is_destroyed = true;
    return one != nullptr;
}
bool record_event(const void* event, const void* stream) {
    simt::Event* const one = simt::event_of(event, "cudaEventRecord");
    if (one == nullptr || !simt::is_alive(stream, "cudaEventRecord")) return false;
    one->done = simt::before_next(stream);
    return true;
}
bool stream_waits(const void* stream, const void* event) {
    const simt::Event* const one = simt::event_of(event, "cudaStreamWaitEvent");
    if (one == nullptr || !simt::is_alive(stream, "cudaStreamWaitEvent")) return false;
    simt::stream_of(stream).done.join(one->done);
    return true;
}
bool host_waits_for_stream(const void* stream) {
    if (!simt::is_alive(stream, "cudaStreamSynchronize")) return false;
    streams().of_host.join(simt::before_next(stream));
    return true;
}
bool host_waits_for_event(const void* event) {
    const simt::Event* const one = simt::event_of(event, "cudaEventSynchronize");
    if (one != nullptr) streams().of_host.join(one->done);
    return one != nullptr;
}
void host_waits_for_all() {
    for (uint32_t i = 1; i < streams().names.size(); ++i) streams().of_host.add(i);
}

void* allocate_in_stream(size_t num_bytes, const void* stream, const char* call) {
    CHECK(source.emulator != nullptr && !source.in_launch, "{} outside of a call of run()", call);
    launch(call, nullptr, {1, 1, 0, stream}, [] {});
    try {
        return simt::allocate_source(num_bytes, 1, 0, static_cast<uint32_t>(source.emulator->num_launches()));
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

// A thread of the device frees, so that what else may touch the memory then is found.
bool free_in_stream(const void* memory, const void* stream, const char* call) {
    CHECK(source.emulator != nullptr && !source.in_launch, "{} outside of a call of run()", call);
    const auto* const begin = static_cast<const std::byte*>(memory);
    const simt::SourceRange* const range = source.find(begin);
    if (range == nullptr || range->begin != begin || range->made_in == 0 || range->is_free) {
        source.emulator->found_on_host(
            fmt::format("{} of memory that cudaMalloc or cudaMallocAsync has not given, or that is free", call),
            simt::FindingKind::kOutOfBounds);
        return false;
    }
    launch(call, nullptr, {1, 1, 0, stream}, [&] {
        if (simt::checked_range(begin, 1, 1, "freed") == nullptr) return;
        simt::report(range->memory->write_touched(simt::Emulator::current().thread().moment), *range, begin);
    });
    source.free_device(begin);
    return true;
}

// In a stream of memory alone, which the host waits for, so that they come before all that follows.
void* allocate_for_all(size_t num_bytes) {
    void* const memory = allocate_in_stream(num_bytes, simt::stream_of_memory(), "cudaMalloc");
    return host_waits_for_stream(simt::stream_of_memory()) ? memory : nullptr;
}
bool free_behind_all(const void* memory) {
    host_waits_for_all();
    const bool is_freed = free_in_stream(memory, simt::stream_of_memory(), "cudaFree");
    return host_waits_for_stream(simt::stream_of_memory()) && is_freed;
}

}  // namespace verbatim::cuda_source
