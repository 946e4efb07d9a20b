// What happens where the system gives little memory. A sanitizer needs more addresses than are left here.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <system_error>

#include "reference/records/record_file.h"
#include "reference/worker_pool.h"

namespace verbatim {
namespace {

using namespace records;
using reference::WorkerPool;

// However long it is: this one has no end.
TEST(RecordFile, AFileWithAnotherStartIsNotReadFurther) {
    const auto read = [] {
        const rlimit little{uint64_t{2} << 30, uint64_t{2} << 30};
        if (setrlimit(RLIMIT_AS, &little) != 0) std::_Exit(99);
        const auto record = read_record("/dev/zero");
        std::_Exit(!record && record.error().message.ends_with("(verbatim replay --record FILE writes one)") ? 7 : 98);
    };
    EXPECT_EXIT(read(), testing::ExitedWithCode(7), "");
}

// On a machine that has no room for so many threads' stacks.
TEST(WorkerPool, ThrowsAndJoinsWhenNoMoreThreadsStart) {
    const auto make_many = [] {
        const rlimit few{uint64_t{1} << 30, uint64_t{1} << 30};
        if (setrlimit(RLIMIT_AS, &few) != 0) std::_Exit(99);
        try {
            const WorkerPool pool(100'000);
        } catch (const std::system_error&) {
            std::_Exit(7);
        }
        std::_Exit(98);
    };
    EXPECT_EXIT(make_many(), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace verbatim
