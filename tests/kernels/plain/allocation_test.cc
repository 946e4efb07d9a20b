// A step takes no memory: whatever it needs was there after the first one like it. Sanitizers bring allocators of their
// own.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/cpu/cpu_executor.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/families.h"

namespace {
std::atomic<bool> counting = false;
std::atomic<int64_t> num_allocations = 0;

void count_allocation() {
    if (counting) ++num_allocations;
}
}  // namespace

// The program's own: every `new`, and what kernels/cpu/aligned_array.h calls. Not inlined: the compiler would see
// malloc's memory deleted.
__attribute__((noinline)) void* operator new(size_t size) {
    count_allocation();
    void* memory = std::malloc(size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, size_t) noexcept { std::free(memory); }

extern "C" void* aligned_alloc(size_t alignment, size_t size) noexcept {
    count_allocation();
    void* memory = nullptr;
    return posix_memalign(&memory, alignment, size) == 0 ? memory : nullptr;
}
extern "C" void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) noexcept {
    count_allocation();
    const int64_t result = syscall(SYS_mmap, address, size, protection, flags, file, offset);
    return reinterpret_cast<void*>(result);
}

namespace verbatim::cpu {
namespace {

using tests::iota;

class AllocationTest : public ::testing::Test {
protected:
    // Slots 0 ... num_slots - 1 compute a prompt, then decode: allocations of each step of `num_steps`.
    std::vector<int64_t> decode(const tests::SceneModel& model, CpuExecutor& executor, int32_t num_slots,
                                int32_t num_steps) {
        tests::PlanBuilder plans(model.model.config.vocab_size);
        const int32_t row = model.has_state ? 0 : -1;
        plans.next();
        for (int32_t slot = 0; slot < num_slots; ++slot) {
            plans.start({.slot = slot, .tokens = model.tokens(40, 1 + slot)});
            plans.compute({.slot = slot,
                           .num_new_tokens = 40,
                           .num_sampled_positions = 1,
                           .state_dst = model.has_state ? slot : row,
                           .new_blocks = model.has_kv ? iota(slot * 8, 8) : iota(0, 0)});
        }
        StepResult result;
        EXPECT_TRUE(executor.execute(plans.plan(), result));
        std::vector<int64_t> allocations;
        for (int32_t i = 0; i < num_steps; ++i) {
            plans.next();
            for (int32_t slot = 0; slot < num_slots; ++slot) {
                plans.compute({.slot = slot,
                               .num_computed_tokens = 40 + i,
                               .num_new_tokens = 1,
                               .num_sampled_positions = 1,
                               .state_src = model.has_state ? slot : row,
                               .state_dst = model.has_state ? slot : row,
                               .appended = {token_of(result, slot)}});
            }
            num_allocations = 0;
            counting = true;
            const Status status = executor.execute(plans.plan(), result);
            counting = false;
            EXPECT_TRUE(status);
            allocations.push_back(num_allocations);
        }
        return allocations;
    }
};

// The tokens of a slot are kept for its life: their vector doubles once in a while, here beyond the steps looked at.
TEST_F(AllocationTest, DecodingTakesNoMemory) {
    for (const tests::Family& family : tests::kAllFamilies) {
        for (const Isa isa : supported_isas()) {
            const tests::SceneModel model(family.draw(31), 31);
            CpuExecutor executor(
                model.model.config, model.model.weights,
                {.pools = {.block_size = 16, .num_blocks = 64, .num_state_rows = 8}, .num_threads = 2, .isa = isa});
            const auto allocations = decode(model, executor, 3, 20);
            for (size_t i = 4; i < allocations.size(); ++i) {
                EXPECT_EQ(allocations[i], 0) << family.name() << ", " << isa_name(isa) << ", step " << i;
            }
        }
    }
}

}  // namespace
}  // namespace verbatim::cpu
