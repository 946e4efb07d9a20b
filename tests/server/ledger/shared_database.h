// tests/server/ledger/shared_database.h: a connection that several stores of a test share.
#pragma once

#include <memory>

#include "tests/server/ledger/wrapping_database.h"

namespace verbatim::tests {

class SharedDatabase final : public WrappingDatabase {
public:
    explicit SharedDatabase(server::SqlDatabase& inner) : WrappingDatabase({std::shared_ptr<void>(), &inner}) {}
    Status connect() override { return {}; }
};

}  // namespace verbatim::tests
