// reference/records/description_json.h: a record's head as JSON, from the lists of fields (engine/fields.h): readable
// by people, by other programs, and by later versions of this one.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "reference/records/codec.h"
#include "reference/records/format.h"

namespace verbatim::records {

// How the entries that follow lie in their bytes.
struct EntryShapes {
    Shape call, step, told, end;
};

struct RecordHead {
    RunDescription run;
    EntryShapes shapes;
};

[[nodiscard]] std::string write_head(const RunDescription& run);
// Any text. Errors: not JSON, another format's version, a field that this program does not know or whose value it
// cannot have, a vocabulary without tokens.
[[nodiscard]] Result<RecordHead> read_head(std::string_view text);

}  // namespace verbatim::records
