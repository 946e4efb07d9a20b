// engine/executor.h: turns a StepPlan into a StepResult. The reference, CPU, CUDA, cost-model, lockstep, replay and
// faulty executors have this one interface, and the engine does not distinguish them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "engine/pool_sizes.h"
#include "engine/step_plan.h"

namespace verbatim {

// Where a head's bytes are. `writer` is the slot that wrote it while that slot is alive, else kNoSlot: executors
// without pools (the uncached reference) answer for living writers only.
struct HeadImage {
    SequenceSlot writer = kNoSlot;
    int64_t length = 0;  // tokens
    std::span<const BlockRun> blocks;
    StateIndex state = kNoState;
    bool deterministic = true;        // made in the arithmetic of deterministic requests, all of it
    int32_t num_resident_blocks = 0;  // of write_head(): the first ones hold the head's bytes already
};

// How an executor's memory follows what is held, in bytes. Zeros: the executor does not share one budget.
struct MemoryUse {
    int64_t reserved = 0;  // the most that the memory can take
    int64_t held = 0;      // by blocks and rows
    int64_t in_use = 0;    // of slabs that hold at least one of them: in_use - held is fragmentation
    int64_t resident = 0;  // of slabs whose pages have not been given back
    int64_t moved = 0;     // in all, to empty slabs
};

// The results of steps that were carried out without plans.
struct EqualSteps {
    int64_t num_steps = 0;
    int64_t elapsed_ns = 0;       // all of them
    std::vector<TokenId> tokens;  // [num_sequences, num_steps]
};

class Executor {
public:
    virtual ~Executor() = default;

    // Carries the plan out and fills `result` (its vectors are reused). An error ends the running requests, not their
    // conversations: the executor forgets every slot and keeps the bytes of every published head, and the engine
    // continues from there.
    virtual Status execute(const StepPlan& plan, StepResult& result) = 0;

    // Sets what completes the masks of a plan (Engine::expect_late_masks): execute() calls it once, when the plan is
    // computed and nothing is sampled yet, and reads no mask before. Null: plans have all their masks. False: this
    // executor wants them all from the beginning, and does not call it.
    [[nodiscard]] virtual bool complete_masks_with(std::function<void()> /*complete*/) { return false; }

    // Blocks and rows that nothing refers to any more: their bytes may be used for other units. Under one budget the
    // engine calls it before each plan; plans, records and digests do not contain it.
    virtual void take_freed(const FreedUnits& /*freed*/) {}
    [[nodiscard]] virtual MemoryUse memory_use() const { return {}; }

    // Whether it carries out equal steps without a plan for each. Such an executor keeps no KV, since plans name the
    // blocks.
    [[nodiscard]] virtual bool takes_equal_steps() const { return false; }
    // Up to `max_steps` steps. In each, every one of `slots` computes the token that it sampled last and samples one.
    // The executor may carry out fewer, and none in which a token ends a turn.
    virtual void take_equal_steps(std::span<const SequenceSlot> slots, int64_t max_steps, EqualSteps& steps);

    // Digest of a head's valid bytes in logical order: KV of positions [0, length) and the state after `length` tokens.
    // Called after the step that wrote the last of them, before the writer's slot ends. Empty: this executor does not
    // hold it.
    virtual std::optional<Digest> head_digest(const HeadImage& image) = 0;

    // A head's bytes: the parts that head_digest() sums, one after the other in the same order, without gaps. Empty:
    // this executor does not hold it.
    virtual std::optional<std::vector<std::byte>> head_bytes(const HeadImage& /*image*/) { return std::nullopt; }
    // Whether these are the bytes of a head of `length` tokens with this digest; of any digest, if it is Digest{}.
    // Errors: what differs.
    [[nodiscard]] virtual Status check_head(int64_t length, std::span<const std::byte> bytes,
                                            const Digest& digest) const;
    // Writes bytes that check_head() has accepted into the image's row and those of its blocks that are not resident,
    // which no plan has named yet: the head was computed elsewhere. An executor that computes attached tokens again has
    // nothing to write. Errors: the executor's; nothing refers to these units then.
    virtual Status write_head(const HeadImage& image, std::span<const std::byte> bytes);

    // What makes the bits of deterministic requests: "exact/1", "tensor.sm90/1", "fast/1 ...". Heads are attached only
    // under the id that made them.
    [[nodiscard]] virtual std::string numerics_id() const = 0;
    // Of ordinary requests, where their arithmetic differs.
    [[nodiscard]] virtual std::string ordinary_numerics_id() const { return numerics_id(); }
};

inline void Executor::take_equal_steps(std::span<const SequenceSlot> slots, int64_t max_steps, EqualSteps&) {
    CHECK(false, "{} sequences, {} steps: this executor wants a plan for each", slots.size(), max_steps);
}

inline Status Executor::check_head(int64_t length, std::span<const std::byte> bytes, const Digest&) const {
    return error("a head of {} tokens, {} bytes: this executor takes no heads", length, bytes.size());
}
inline Status Executor::write_head(const HeadImage& image, std::span<const std::byte> bytes) {
    CHECK(false, "a head of {} tokens, {} bytes: this executor takes no heads", image.length, bytes.size());
}

// An executor that passes heads and arithmetic of another one through; execute() is the subclass's.
class WrappingExecutor : public Executor {
public:
    std::optional<Digest> head_digest(const HeadImage& image) override { return inner_.head_digest(image); }
    std::optional<std::vector<std::byte>> head_bytes(const HeadImage& image) final { return inner_.head_bytes(image); }
    [[nodiscard]] Status check_head(int64_t length, std::span<const std::byte> bytes,
                                    const Digest& digest) const final {
        return inner_.check_head(length, bytes, digest);
    }
    Status write_head(const HeadImage& image, std::span<const std::byte> bytes) final {
        return inner_.write_head(image, bytes);
    }
    void take_freed(const FreedUnits& freed) final { inner_.take_freed(freed); }
    [[nodiscard]] MemoryUse memory_use() const final { return inner_.memory_use(); }
    [[nodiscard]] std::string numerics_id() const override { return inner_.numerics_id(); }
    [[nodiscard]] std::string ordinary_numerics_id() const override { return inner_.ordinary_numerics_id(); }

protected:
    explicit WrappingExecutor(Executor& inner) : inner_(inner) {}  // borrowed
    [[nodiscard]] Executor& inner() { return inner_; }

private:
    Executor& inner_;
};

}  // namespace verbatim
