// server/ledger/ledger_address.h: owns what `--ledger` says.
#pragma once

#include <memory>
#include <string>

#include "engine/base/result.h"
#include "server/ledger/ledger_store.h"

namespace verbatim::server {

// A file, sqlite:///FILE, postgresql://... (postgres:// too), or `none`: a null store. Nothing is opened. Errors: an
// address of another kind.
[[nodiscard]] Result<std::unique_ptr<LedgerStore>> make_ledger_store(const std::string& address);
// The same for a ledger that is read: its open() makes none. Errors also: `none`.
[[nodiscard]] Result<std::unique_ptr<LedgerStore>> existing_ledger_store(const std::string& address);

// Where a ledger lies when nothing is said: NAME.ledger in $XDG_STATE_HOME/verbatim, else in
// $HOME/.local/state/verbatim. Makes the folder. Errors: neither is set; the folder cannot be made.
[[nodiscard]] Result<std::string> default_ledger(const std::string& name);

}  // namespace verbatim::server
