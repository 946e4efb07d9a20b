#include "files/quick_json.h"

#include <simdjson.h>

#include <cstdint>
#include <string>

namespace verbatim {
namespace {

constexpr auto kUnknownSize = static_cast<size_t>(-1);

bool tell(const simdjson::dom::element& value, JsonEvents& told);

bool tell_text(std::string_view text, JsonEvents& told) {
    std::string own(text);
    return told.string(own);
}

bool tell_integer(int64_t value, JsonEvents& told) {
    return value < 0 ? told.number_integer(value) : told.number_unsigned(static_cast<uint64_t>(value));
}

bool tell_object(const simdjson::dom::object& object, JsonEvents& told) {
    if (!told.start_object(kUnknownSize)) return false;
    for (const auto& [name, value] : object) {
        std::string key(name);
        if (!told.key(key) || !tell(value, told)) return false;
    }
    return told.end_object();
}

bool tell_array(const simdjson::dom::array& array, JsonEvents& told) {
    if (!told.start_array(kUnknownSize)) return false;
    for (const simdjson::dom::element value : array) {
        if (!tell(value, told)) return false;
    }
    return told.end_array();
}

bool tell(const simdjson::dom::element& value, JsonEvents& told) {
    using simdjson::dom::element_type;
    switch (value.type()) {
        case element_type::OBJECT: return tell_object(value.get_object().value_unsafe(), told);
        case element_type::ARRAY: return tell_array(value.get_array().value_unsafe(), told);
        case element_type::STRING: return tell_text(value.get_string().value_unsafe(), told);
        case element_type::INT64: return tell_integer(value.get_int64().value_unsafe(), told);
        case element_type::UINT64: return told.number_unsigned(value.get_uint64().value_unsafe());
        case element_type::DOUBLE: return told.number_float(value.get_double().value_unsafe(), {});
        case element_type::BOOL: return told.boolean(value.get_bool().value_unsafe());
        case element_type::NULL_VALUE: return told.null();
    }
    return false;
}

}  // namespace

bool read_quickly(std::string_view text, JsonEvents& told) {
    simdjson::dom::parser parser;
    simdjson::dom::element value;
    return parser.parse(text.data(), text.size()).get(value) == simdjson::SUCCESS && tell(value, told);
}

}  // namespace verbatim
