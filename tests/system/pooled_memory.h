// tests/system/pooled_memory.h: owns this program's operator new and SQLite's memory: free blocks stay in lists, one
// for every size and thread, and are taken again. malloc() keeps seven of a size at hand and merges the rest, which
// takes longer than what worlds do with most blocks. The sanitizers replace operator new instead.
#pragma once

namespace verbatim::tests {

// REQUIRES: SQLite is not initialized. False: SQLite refuses it.
[[nodiscard]] bool pool_sqlite_memory();

}  // namespace verbatim::tests
