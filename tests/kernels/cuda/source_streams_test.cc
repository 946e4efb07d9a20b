// Streams of CUDA source: which launches a GPU may run at the same time, and what they may then not touch.
#include "kernels/simt/source_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

#include "kernels/simt/emulator.h"
#include "kernels/simt/source_memory.h"
#include "kernels/simt/source_threads.h"

namespace verbatim::simt {
namespace {

using testing::HasSubstr;

// A call of run(): the call's stream, and a side stream.
class SourceStreams : public testing::Test {
protected:
    static constexpr size_t kBytes = 64;
    explicit SourceStreams(cuda_source::StreamKind kind = cuda_source::StreamKind::kNonBlocking)
        : side_(cuda_source::create_stream(kind)) {}

    void write(const void* stream) { cuda_source::set_memory(memory_, 1, kBytes, stream); }
    void read(const void* stream) { cuda_source::copy_memory(scratch(), memory_, kBytes, false, stream); }
    void order(const void* before, const void* behind) {
        const void* const event = cuda_source::create_event();
        EXPECT_TRUE(cuda_source::record_event(event, before));
        EXPECT_TRUE(cuda_source::stream_waits(behind, event));
    }
    // The first finding, run() included.
    [[nodiscard]] std::string found() {
        device_.end_call();
        return emulator_.findings().empty() ? "" : emulator_.findings().front().text;
    }
    const void* call() { return &emulator_; }

    Emulator emulator_;
    SourceDevice device_{emulator_, nullptr, 0, 1};
    std::byte* memory_ = device_.allocate(kBytes, 1, 0);
    const void* side_;

private:
    std::byte* scratch() { return device_.allocate(kBytes, 1, 0); }
};

class BlockingStreams : public SourceStreams {
protected:
    BlockingStreams() : SourceStreams(cuda_source::StreamKind::kBlocking) {}
};

constexpr const char* kRace = "a launch of another stream may touch it at the same time";

TEST_F(SourceStreams, AWriteThatNoEventOrdersIsARace) {
    write(side_);
    write(call());
    EXPECT_THAT(found(), HasSubstr(kRace));
}

TEST_F(SourceStreams, AnEventOrdersTwoStreams) {
    write(call());
    order(call(), side_);
    read(side_);
    order(side_, call());
    write(call());
    EXPECT_EQ(found(), "");
}

TEST_F(SourceStreams, AnEventHasWhatWasInItsStreamWhenItWasRecorded) {
    order(side_, call());
    write(side_);
    read(call());
    EXPECT_THAT(found(), HasSubstr(kRace));
}

TEST_F(SourceStreams, WhatTheHostHasWaitedForIsBeforeEveryLaunch) {
    write(side_);
    EXPECT_TRUE(cuda_source::host_waits_for_stream(side_));
    write(call());
    write(nullptr);
    EXPECT_EQ(found(), "");
}

// Of both readers: the write is behind one of them.
TEST_F(SourceStreams, AWriteRacesWithTheReaderThatItIsNotBehind) {
    for (const bool waits_for_first : {false, true}) {
        write(call());
        order(call(), side_);
        const void* const third = cuda_source::create_stream(cuda_source::StreamKind::kNonBlocking);
        order(call(), third);
        read(side_);
        read(third);
        order(waits_for_first ? side_ : third, call());
        write(call());
        EXPECT_THAT(found(), HasSubstr(kRace)) << waits_for_first;
        emulator_.clear_findings();
        cuda_source::host_waits_for_all();
    }
}

TEST_F(SourceStreams, ALaunchThatMayStillRunWhenRunEndsIsNotAwaited) {
    write(side_);
    EXPECT_THAT(found(), HasSubstr("cudaMemset: run() ends, and this launch of another stream may still run"));
}

TEST_F(SourceStreams, ANonBlockingStreamDoesNotWaitForLaunchesWithoutAStream) {
    write(nullptr);
    write(side_);
    EXPECT_THAT(found(), HasSubstr(kRace));
}

TEST_F(BlockingStreams, WaitForLaunchesWithoutAStreamAndThoseForThem) {
    write(nullptr);
    write(side_);
    write(nullptr);
    write(side_);
    EXPECT_EQ(found(), "");
}

TEST_F(BlockingStreams, DoNotWaitForTheStreamOfTheCall) {
    write(call());
    write(side_);
    EXPECT_THAT(found(), HasSubstr(kRace));
}

TEST_F(SourceStreams, ADestroyedStreamIsALaunchLimit) {
    EXPECT_TRUE(cuda_source::destroy_stream(side_));
    write(side_);
    EXPECT_EQ(emulator_.findings().front().kind, FindingKind::kLaunchLimit);
    EXPECT_FALSE(cuda_source::destroy_stream(side_));
}

TEST_F(SourceStreams, MemoryOfThePoolIsThereFromItsAllocationToItsEnd) {
    memory_ = static_cast<std::byte*>(cuda_source::allocate_in_stream(kBytes, call()));
    write(call());
    EXPECT_TRUE(cuda_source::free_in_stream(memory_, call()));
    EXPECT_TRUE(emulator_.findings().empty());
    EXPECT_FALSE(cuda_source::free_in_stream(memory_, call()));
    emulator_.clear_findings();
    read(call());
    EXPECT_THAT(found(), HasSubstr("behind its cudaFreeAsync"));
}

TEST_F(SourceStreams, MemoryOfThePoolIsOfItsStream) {
    memory_ = static_cast<std::byte*>(cuda_source::allocate_in_stream(kBytes, call()));
    write(side_);
    EXPECT_THAT(found(), HasSubstr("in another stream than its cudaMallocAsync"));
}

TEST_F(SourceStreams, MemoryThatAnotherStreamMayTouchIsFreedInARace) {
    memory_ = static_cast<std::byte*>(cuda_source::allocate_in_stream(kBytes, call()));
    order(call(), side_);
    write(side_);
    EXPECT_TRUE(cuda_source::free_in_stream(memory_, call()));
    EXPECT_THAT(found(), HasSubstr(kRace));
}

}  // namespace
}  // namespace verbatim::simt
