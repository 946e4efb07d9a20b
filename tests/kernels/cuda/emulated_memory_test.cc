// The records of emulated memory: a cell lists the readers that nothing orders.
#include "kernels/simt/emulated_memory.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "kernels/simt/knowledge.h"

namespace verbatim::simt {
namespace {

// What threads have done so far is known.
Knowledge knowledge_of(std::initializer_list<int32_t> threads) {
    Knowledge knowledge;
    for (const int32_t thread : threads) knowledge.known.raise(thread, 1);
    return knowledge;
}
Now point_of(int32_t thread, const Knowledge& knowledge) {
    Now now;
    now.launch = 1;
    now.block = 0;
    now.thread = now.issuer = thread;
    now.unsafe_from = 1;
    now.knowledge = &knowledge;
    return now;
}

// A cell whose readers are all ordered before its writer drops their list, which another cell then takes.
TEST(EmulatedMemory, AListOfReadersIsOfOneCell) {
    constexpr size_t kCell = 4;
    Memory memory(2 * kCell, kCell);
    memory.fill(0, 2 * kCell);
    const Knowledge nothing, of_writer = knowledge_of({0}), of_all = knowledge_of({0, 32, 64}),
                             of_two = knowledge_of({0, 96, 128});
    for (const size_t at : {size_t{0}, kCell}) {
        for (const int32_t reader : {32, 64}) {
            EXPECT_EQ(memory.read(at, kCell, point_of(reader, nothing)), Clash::kNone);
        }
    }
    for (const size_t at : {size_t{0}, kCell}) {
        EXPECT_EQ(memory.write(at, kCell, point_of(0, of_all)), Clash::kNone);
    }
    for (const int32_t reader : {32, 64}) {
        EXPECT_EQ(memory.read(0, kCell, point_of(reader, of_writer)), Clash::kNone);
    }
    for (const int32_t reader : {96, 128}) {
        EXPECT_EQ(memory.read(kCell, kCell, point_of(reader, of_writer)), Clash::kNone);
    }
    EXPECT_EQ(memory.write(0, kCell, point_of(0, of_two)), Clash::kWriteAfterRead);
    EXPECT_EQ(memory.write(kCell, kCell, point_of(0, of_two)), Clash::kNone);
}

}  // namespace
}  // namespace verbatim::simt
