// The host side of the CUDA engine, kernels/cuda/gpu_device.cu and all that is above it, held to CUDA's rules where
// there is no device: the object that nvcc made, linked with a runtime whose kernels do nothing.
#include "kernels/cuda/gpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <tuple>

#include "kernels/cuda/compiled_for.h"
#include "kernels/cuda/cuda_executor.h"
#include "kernels/cuda/emulated_device.h"
#include "tests/cuda_runtime/strict_runtime.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::cuda {
namespace {

using strict_runtime::begin_process;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using tests::SceneModel;

// As the program asks for one, but without a self-test: kernels do nothing here.
constexpr GpuDeviceConfig kProgram{.num_self_test_tiles = 0, .resets_after_errors = true};

// Sequences on a fresh device: no token depends on what kernels compute.
class Session {
public:
    static constexpr int32_t kBlocksEach = 8;
    static constexpr int32_t kMostSequences = 6;
    static constexpr int32_t kAttached = 5;  // tokens
    static constexpr int32_t kWindow = 4;    // rows

    Session(const SceneModel& model, Device& device, reference::Profile profile = reference::Profile::kExact)
        : model_(model),
          device_(device),
          executor_(model.model.config, model.model.weights, device,
                    {.pools = {.num_blocks = kBlocksEach * kMostSequences, .num_state_rows = kMostSequences + 1},
                     .max_log_tokens = 2 * kWindow},
                    profile),
          plans_(model.model.config.vocab_size) {}

    // Prefills that buffers grow for, one after a tail's copy; decode steps of several numbers of sequences, each
    // number computed, recorded and launched again, and so windows; what is read of it.
    Status run() {
        RETURN_IF_ERROR(prefill(1, 20));
        RETURN_IF_ERROR(prefill(2, 20));
        RETURN_IF_ERROR(decode(3, 4));
        RETURN_IF_ERROR(prefill(3, 70));
        RETURN_IF_ERROR(decode(6, 3));
        RETURN_IF_ERROR(speculate(3));
        RETURN_IF_ERROR(decode(2, 4));
        return read();
    }

private:
    // So many sequences more; but for the first one they attach to what it had after kAttached tokens.
    Status prefill(int32_t count, int32_t length) {
        plans_.next();
        for (const auto end = static_cast<int32_t>(lengths_.size()) + count; std::ssize(lengths_) < end;) {
            const auto slot = static_cast<int32_t>(lengths_.size());
            const int32_t known = slot == 0 ? 0 : kAttached;
            plans_.start({.slot = slot, .tokens = model_.tokens(length, 1), .num_computed_tokens = known});
            if (known > 0) plans_.copy(0, kBlocksEach * slot, known);
            tests::SequenceSpec part{.slot = slot,
                                     .num_computed_tokens = known,
                                     .num_new_tokens = length - known,
                                     .num_sampled_positions = 1,
                                     .state_src = known > 0 ? kMostSequences : -1,
                                     .state_dst = slot,
                                     .new_blocks = tests::iota(kBlocksEach * slot, kBlocksEach)};
            if (slot == 0) part.state_writes = {{kAttached, StateIndex{kMostSequences}}};
            plans_.compute(part);
            lengths_.push_back(length);
        }
        return executor_.execute(plans_.plan(), result_);
    }
    // The first `count` sequences by one token, `times` times; the others end.
    Status decode(size_t count, int times) {
        for (int n = 0; n < times; ++n) {
            plans_.next();
            for (; lengths_.size() > count; lengths_.pop_back()) plans_.end(static_cast<int32_t>(lengths_.size()) - 1);
            for (size_t i = 0; i < count; ++i) {
                const auto slot = static_cast<int32_t>(i);
                plans_.compute({.slot = slot,
                                .num_computed_tokens = lengths_[i]++,
                                .num_new_tokens = 1,
                                .num_sampled_positions = 1,
                                .state_src = slot,
                                .state_dst = slot,
                                .appended = {7}});
            }
            RETURN_IF_ERROR(executor_.execute(plans_.plan(), result_));
        }
        return {};
    }
    // Windows of the first sequence, the row written by every other one, and then by a step without rows.
    Status speculate(int times) {
        int64_t& length = lengths_[0];
        int64_t state_length = length;
        std::vector<TokenId> told{7};
        for (int n = 0; n < times; ++n) {
            tests::SequenceSpec window{.slot = 0,
                                       .num_computed_tokens = length,
                                       .num_new_tokens = kWindow,
                                       .num_sampled_positions = kWindow,
                                       .state_src = 0,
                                       .state_dst = n % 2 == 0 ? 0 : -1,
                                       .num_state_tokens = state_length,
                                       .appended = told};
            window.appended.resize(told.size() + kWindow - 1, 3);
            plans_.next().compute(window);
            RETURN_IF_ERROR(executor_.execute(plans_.plan(), result_));
            if (n % 2 == 0) state_length = length + 1;
            told = result_.tokens;
            length += std::ssize(told);
        }
        told.pop_back();
        plans_.next().compute({.slot = 0,
                               .num_computed_tokens = length,
                               .state_src = 0,
                               .state_dst = 0,
                               .num_state_tokens = state_length,
                               .appended = told});
        return executor_.execute(plans_.plan(), result_);
    }
    Status read() {
        const BlockRun blocks{BlockId{0}, static_cast<int32_t>((lengths_[0] + 15) / 16)};
        const HeadImage head{
            .writer = SequenceSlot{0}, .length = lengths_[0], .blocks = {&blocks, 1}, .state = StateIndex{0}};
        const bool has_digest = executor_.head_digest(head).has_value();
        executor_.read_head(head, [](const reference::HeadPiece&) {});
        EXPECT_FALSE(executor_.logits(SequenceSlot{0}, 0).empty());
        const Status done = device_.synchronize();
        EXPECT_EQ(has_digest, done.has_value());
        return done;
    }

    const SceneModel& model_;
    Device& device_;
    CudaExecutor executor_;
    tests::PlanBuilder plans_;
    StepResult result_;
    std::vector<int64_t> lengths_;  // by slot
};

auto numbers(const DeviceCounts& counts) {
    return std::tuple(counts.allocations, counts.launches, counts.graph_launches, counts.uploads, counts.waits);
}

class GpuDevice : public ::testing::Test {
protected:
    GpuDevice() { begin_process(); }
    ~GpuDevice() override { expect_clean(); }
    static void expect_clean() {
        EXPECT_THAT(strict_runtime::violations(), IsEmpty());
        EXPECT_THAT(strict_runtime::left_behind(), IsEmpty());
    }
    // On a fresh device.
    [[nodiscard]] Status run() const {
        ASSIGN_OR_RETURN(const auto device, make_gpu_device(kProgram));
        return Session(model_, *device).run();
    }
    // The message of a run that fails in a child process; then one that works.
    [[nodiscard]] std::string error_of(const strict_runtime::Machine& machine) const {
        begin_process(machine);
        const Status failed = run();
        expect_clean();
        EXPECT_EQ(strict_runtime::counts().resets, failed ? 0 : 1);
        if (failed) return "";
        EXPECT_EQ(failed.error().kind, ErrorKind::kMachine);
        const Status after = run();
        EXPECT_TRUE(after) << after.error().message;
        return failed.error().message;
    }

    const SceneModel model_{reference::draw_small_config(reference::Architecture::kGraniteHybrid, 8), 8};
};

// Two processors are busy with large blocks, whose shared memory has to be asked for.
TEST_F(GpuDevice, KeepsTheRulesInEveryProfileWithTheEmulatedDevicesCalls) {
    using reference::Profile;
    for (const auto profile : {Profile::kExact, Profile::kTensorSm90, Profile::kFast}) {
        simt::Emulator emulator;
        const auto emulated = make_emulated_device(emulator);
        ASSERT_TRUE(Session(model_, *emulated, profile).run());
        for (const int32_t num_processors : {2, 132}) {
            begin_process({.num_processors = num_processors});
            auto device = make_gpu_device(kProgram);
            ASSERT_TRUE(device);
            ASSERT_TRUE(Session(model_, **device, profile).run());
            const DeviceCounts counts = (*device)->counts();
            EXPECT_EQ(numbers(counts), numbers(emulated->counts()));
            EXPECT_EQ(counts.graph_launches, 3 + 2 + 2 + 3);
            EXPECT_EQ(strict_runtime::counts().kernels, emulator.num_launches());
            EXPECT_EQ(strict_runtime::counts().waits, counts.waits);
            device->reset();
            EXPECT_EQ(strict_runtime::counts().resets, 0);
            expect_clean();
        }
    }
}

// What launches are held to is read from the object: not a size is known of code that nvcc compresses.
TEST_F(GpuDevice, TheStrictRuntimeReadsStaticSharedMemory) {
    EXPECT_GT(strict_runtime::num_kernels_with_static_shared(), 40);
}

// Once for a device, not at each launch.
TEST_F(GpuDevice, SetsAKernelsSharedMemoryOnce) {
    begin_process({.num_processors = 2});
    auto device = make_gpu_device(kProgram);
    ASSERT_TRUE(device);
    ASSERT_TRUE(Session(model_, **device, reference::Profile::kTensorSm90).run());
    const int64_t first = strict_runtime::counts().attributes;
    EXPECT_GT(first, 1);
    ASSERT_TRUE(Session(model_, **device, reference::Profile::kTensorSm90).run());
    EXPECT_EQ(strict_runtime::counts().attributes, first);
    device->reset();
    const auto fresh = make_gpu_device(kProgram);
    ASSERT_TRUE(Session(model_, **fresh, reference::Profile::kTensorSm90).run());
    EXPECT_EQ(strict_runtime::counts().attributes, 2 * first);
}

// Not where a device runs the code for an earlier one, which does not know how to wait.
TEST_F(GpuDevice, AMatvecStartsEarlyIfItsCodeWaits) {
    for (const int major : {8, 9, 12}) {
        begin_process({.major = major});
        auto device = make_gpu_device(kProgram);
        ASSERT_TRUE(device);
        ASSERT_TRUE(Session(model_, **device).run());
        EXPECT_EQ(strict_runtime::counts().dependents > 0, major == 9) << major;
        device->reset();
        expect_clean();
    }
}

TEST_F(GpuDevice, AnyFailingAllocationIsReportedWithoutALeak) {
    int64_t n = 1;
    for (std::string message; !(message = error_of({.fail_at_allocation = n})).empty(); ++n) {
        ASSERT_THAT(message, ::testing::ContainsRegex("^GPU: cudaMalloc(Host)? of [0-9]+ bytes: out of memory$"));
    }
    EXPECT_GT(n, 60);
}

TEST_F(GpuDevice, AnyFailingKernelIsReportedAndAFreshDeviceWorks) {
    int64_t n = 1;
    for (std::string message; !(message = error_of({.fail_at_kernel = n})).empty(); n += 7) {
        ASSERT_THAT(message, ::testing::ContainsRegex(
                                 "^GPU: (cudaStreamSynchronize|download) after [a-z_]+ over .* blocks of .*: an "
                                 "illegal memory access was encountered$"));
    }
    EXPECT_GT(n, 400);
}

// As the emulated device names it.
TEST_F(GpuDevice, WhenLaunchesWaitTheErrorNamesTheKernelThatFailed) {
    for (const int64_t n : {1, 5, 20, 33}) {
        simt::Emulator emulator;
        const auto emulated = make_emulated_device(emulator, {.fail_at_launch = n});
        const Status failed = Session(model_, *emulated).run();
        ASSERT_FALSE(failed);
        const std::string told = failed.error().message.substr(std::string("emulated ").size());
        const std::string kernel = told.substr(0, told.find(" over"));
        EXPECT_THAT(error_of({.launches_wait = true, .fail_at_kernel = n}), StartsWith(kernel + " over")) << n;
    }
}

TEST_F(GpuDevice, AnUnreportedKernelErrorEndsWithItsDevice) {
    begin_process({.fail_at_kernel = 1});
    {
        const auto device = make_gpu_device(kProgram);
        ASSERT_TRUE(device);
        (*device)->scale({reinterpret_cast<float*>(8), 1, 1, 1}, 2.0F);
    }
    const Status after = run();
    EXPECT_TRUE(after) << after.error().message;
}

TEST_F(GpuDevice, ADevicesEndAfterAnErrorLeavesOtherDevicesIntact) {
    begin_process({.fail_at_allocation = 1});
    auto failing = make_gpu_device(kProgram);
    ASSERT_TRUE(failing);
    EXPECT_EQ((*failing)->allocate(8, 4), nullptr);
    {
        const auto other = make_gpu_device(kProgram);
        ASSERT_TRUE(other);
        Session session(model_, **other);
        failing->reset();
        const Status done = session.run();
        EXPECT_TRUE(done) << done.error().message;
        EXPECT_EQ(strict_runtime::counts().resets, 0);
    }
    EXPECT_EQ(strict_runtime::counts().resets, 1);
}

// Another program has memory there too.
TEST_F(GpuDevice, AForeignContextIsNotResetUnasked) {
    begin_process({.fail_at_allocation = 1});
    auto failing = make_gpu_device({.num_self_test_tiles = 0});
    ASSERT_TRUE(failing);
    EXPECT_EQ((*failing)->allocate(8, 4), nullptr);
    failing->reset();
    EXPECT_EQ(strict_runtime::counts().resets, 0);
}

// Unwritten sums are not the model's, and a device without memory reports that.
TEST_F(GpuDevice, TensorCoresThatDoNothingAreRefused) {
    using reference::Profile;
    {
        const auto device = make_gpu_device({.num_self_test_tiles = 9});
        ASSERT_TRUE(device);
        EXPECT_TRUE((*device)->computes_in(Profile::kExact));
        const Status granted = (*device)->computes_in(Profile::kTensorSm90);
        ASSERT_FALSE(granted);
        EXPECT_THAT(granted.error().message, StartsWith("tensor.sm90 is refused: in the self-test of a stand-in"));
        EXPECT_THAT(granted.error().message, HasSubstr("best fit"));
        EXPECT_EQ((*device)->counts().launches, 0);
        EXPECT_EQ(strict_runtime::counts().kernels, 2);  // mma, wgmma
    }
    begin_process({.fail_at_allocation = 2});
    const auto device = make_gpu_device();
    ASSERT_TRUE(device);
    const Status granted = (*device)->computes_in(Profile::kTensorSm90);
    ASSERT_FALSE(granted);
    EXPECT_THAT(granted.error().message, HasSubstr("out of memory"));
}

// Code for 80 or 90 runs there, too, and has no warpgroups in it.
TEST_F(GpuDevice, UsesWarpgroupsIfTheyWereCompiled) {
    for (const char* with : {"90a", "80,90a", "90a-real", "80-real,90a-virtual", "90a,100a"}) {
        EXPECT_TRUE(has_warpgroup_code(with)) << with;
    }
    for (const char* without : {"", "80", "90", "80,90", "90-real,90-virtual", "100a", "190a", "90aa"}) {
        EXPECT_FALSE(has_warpgroup_code(without)) << without;
    }
    for (const int major : {8, 9, 10}) {
        begin_process({.major = major});
        const auto device = make_gpu_device(kProgram);
        ASSERT_TRUE(device);
        EXPECT_EQ((*device)->uses_wgmma(), major == 9 && has_warpgroup_code(compiled_architectures()));
    }
}

// Others may compute the same sums one day: their numbers have other names.
TEST_F(GpuDevice, OtherFamiliesAreRefusedByName) {
    using reference::Profile;
    for (const int major : {8, 10, 12}) {
        begin_process({.major = major});
        const auto device = make_gpu_device();
        ASSERT_TRUE(device);
        EXPECT_TRUE((*device)->computes_in(Profile::kExact));
        const Status granted = (*device)->computes_in(Profile::kTensorSm90);
        ASSERT_FALSE(granted);
        EXPECT_THAT(
            granted.error().message,
            HasSubstr(fmt::format("compute capability 9.0: this is a stand-in, compute capability {}.0", major)));
        EXPECT_EQ(strict_runtime::counts().kernels, 0);
    }
}

// They share CUDA's context: what one's kernel does ends them all, and the last to go makes room for the next.
TEST_F(GpuDevice, AKernelsErrorAffectsAllLiveDevicesAndNoLaterOne) {
    begin_process({.fail_at_kernel = 1});
    auto failing = make_gpu_device(kProgram);
    ASSERT_TRUE(failing);
    {
        const auto other = make_gpu_device(kProgram);
        ASSERT_TRUE(other);
        (*failing)->scale({reinterpret_cast<float*>(8), 1, 1, 1}, 2.0F);
        EXPECT_FALSE((*failing)->synchronize());
        failing->reset();
        const Status told = (*other)->synchronize();
        ASSERT_FALSE(told);
        EXPECT_THAT(told.error().message, HasSubstr("illegal memory access"));
    }
    const Status after = run();
    EXPECT_TRUE(after) << after.error().message;
}

}  // namespace
}  // namespace verbatim::cuda
