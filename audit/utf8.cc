#include <simdjson.h>

#include "audit/answer.h"

namespace verbatim::audit {

bool is_utf8(const std::string& text) { return simdjson::validate_utf8(text.data(), text.size()); }

}  // namespace verbatim::audit
