// reference/records/description_json.h: a record's head as JSON, from the lists of fields (engine/fields.h): readable
// by people, by other programs, and by later versions of this program.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "reference/records/codec.h"
#include "reference/records/format.h"

namespace verbatim::records {

// The layout of the entries that follow.
struct EntryShapes {
    Shape call, step, told, end;
};

struct RecordHead {
    RunDescription run;
    EntryShapes shapes;
};

[[nodiscard]] std::string write_head(const RunDescription& run);
// Takes any text. Errors: not JSON, another format's version, an unknown field or a value out of range, a vocabulary
// without tokens.
[[nodiscard]] Result<RecordHead> read_head(std::string_view text);

}  // namespace verbatim::records
